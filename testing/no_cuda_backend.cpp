#include "testing/backend.h"

namespace hyla::testing {

std::unique_ptr<Backend> cuda_backend() { return nullptr; }

}  // namespace hyla::testing
