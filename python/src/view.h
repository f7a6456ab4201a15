// Python objects to TensorView, at a fraction of a microsecond each: torch tensors by their attributes, anything else as the tuple that
// hyla._arrays makes of it: (address, dtype name, shape, strides in elements, device kind, device index).
#pragma once
#include <nanobind/nanobind.h>

#include "hyla/device.h"
#include "hyla/status.h"
#include "hyla/tensor.h"

namespace hyla::py {

namespace nb = nanobind;

// None gives an absent tensor.
TensorView to_view(nb::handle object);

// Raises hyla.HylaError (a ValueError) for any Status that is not ok; kUnsupported raises hyla.UnsupportedError.
void raise_if_error(const Status& status);
template <class T>
T unwrap(Result<T> result) {
  raise_if_error(result.status());
  return std::move(result).value();
}

// The exception types, made by the module.
void register_errors(nb::module_& m);

// The figures of a device of this machine, cached.
const DeviceCaps& caps_of(Device device);

}  // namespace hyla::py
