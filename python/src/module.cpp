// The extension module hyla._hyla. Each operation binds itself (ops/<op>/py.cpp).
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "hyla/plan.h"
#include "view.h"

namespace nb = nanobind;

namespace hyla {
namespace kda {
void bind(nb::module_& m);
}
namespace extend {
void bind(nb::module_& m);
}
}  // namespace hyla

NB_MODULE(_hyla, m) {
  using namespace hyla;
  py::register_errors(m);

  nb::class_<Candidate>(m, "Candidate", "One way to run a problem, as the planner saw it.")
      .def_ro("variant", &Candidate::variant)
      .def_ro("config", &Candidate::config)
      .def_ro("legal", &Candidate::legal)
      .def_ro("modelled_us", &Candidate::modelled_us)
      .def_ro("reason", &Candidate::reason);

  m.def("built_with_cuda", &built_with_cuda);
  m.def("cuda_device_count", &cuda_device_count);
  m.def("cpu_threads", &cpu_threads);
  m.def("known_devices", [] {
    std::vector<std::string> names;
    for (const auto& caps : known_devices()) names.push_back(caps.name);
    return names;
  });
  m.def("device_name", [](const std::string& kind, int index) { return py::caps_of(kind == "cuda" ? Device{DeviceKind::kCuda, index} : Device{}).name; });

  kda::bind(m);
  extend::bind(m);
}
