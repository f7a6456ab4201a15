// Between the C structs and the C++ ones.
#pragma once
#include <cstring>
#include <exception>
#include <string>

#include "hyla/device.h"
#include "hyla/hyla_c.h"
#include "hyla/plan.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

struct hyla_caps {
  hyla::DeviceCaps caps;
};

namespace hyla::capi {

// Fills `error` (which may be null) and gives the code.
hyla_code report(const Status& status, hyla_error* error);

Result<TensorView> to_view(const char* argument, const hyla_tensor& t);
Result<PlanOptions> to_options(const hyla_plan_options* options);

// An enum or flag that comes as an int32.
Status check_choice(const char* argument, int32_t value, int32_t last);

// Starts from `defaults` (the library's own struct, freshly initialised) and takes over what the caller's version of the struct holds.
template <class Struct>
Status read_versioned(const char* argument, const Struct* from, Struct& defaults) {
  if (from == nullptr) return Status::invalid(argument, std::string("a pointer"), std::string("null"));
  size_t size;
  std::memcpy(&size, from, sizeof(size));
  if (size < sizeof(size_t) || size > sizeof(Struct))
    return Status::invalid(std::string(argument) + ".struct_size",
                           "at most " + std::to_string(sizeof(Struct)) + ", as the init function of this library sets it", std::to_string(size));
  std::memcpy(&defaults, from, size);
  return {};
}

// No exception crosses the C interface.
template <class Body>
hyla_code guarded(hyla_error* error, Body body) {
  try {
    return report(body(), error);
  } catch (const std::exception& e) {
    if (error != nullptr) {
      *error = {};
      std::strncpy(error->message, e.what(), sizeof(error->message) - 1);
    }
    return HYLA_INTERNAL;
  }
}

}  // namespace hyla::capi
