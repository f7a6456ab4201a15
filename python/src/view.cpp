#include "view.h"

#include <nanobind/stl/string.h>

#include <map>
#include <mutex>
#include <string>

namespace hyla::py {
namespace {

// torch's types, looked up when the first torch tensor arrives. Never freed: they live as long as the interpreter.
struct Torch {
  PyObject* tensor = nullptr;
  std::pair<PyObject*, DType> dtypes[9];

  bool load() {
    if (tensor) return true;
    PyObject* modules = PyImport_GetModuleDict();
    PyObject* torch = PyDict_GetItemString(modules, "torch");
    if (!torch) return false;
    const std::pair<const char*, DType> names[] = {{"bfloat16", DType::kBf16},      {"float16", DType::kFp16},     {"float32", DType::kFp32},
                                                   {"float8_e4m3fn", DType::kE4m3}, {"float8_e5m2", DType::kE5m2}, {"int32", DType::kI32},
                                                   {"int64", DType::kI64},          {"uint8", DType::kU8},         {"bool", DType::kBool}};
    for (int i = 0; i < 9; ++i) dtypes[i] = {PyObject_GetAttrString(torch, names[i].first), names[i].second};
    tensor = PyObject_GetAttrString(torch, "Tensor");
    return tensor != nullptr;
  }
};
Torch g_torch;

DType dtype_from_name(const std::string& name) {
  static const std::map<std::string, DType> names{{"bfloat16", DType::kBf16},      {"float16", DType::kFp16},     {"float32", DType::kFp32},
                                                  {"float8_e4m3fn", DType::kE4m3}, {"float8_e5m2", DType::kE5m2}, {"int32", DType::kI32},
                                                  {"int64", DType::kI64},          {"uint8", DType::kU8},         {"bool", DType::kBool}};
  auto it = names.find(name);
  if (it == names.end()) throw nb::type_error(("hyla takes bf16, fp16, fp32, fp8, int32, int64, uint8 and bool arrays, got dtype " + name).c_str());
  return it->second;
}

void set_dims(TensorView& t, nb::handle shape, nb::handle strides) {
  const size_t rank = nb::len(shape);
  if (rank > TensorView::kMaxRank) throw nb::type_error("hyla takes arrays of at most 5 dimensions");
  t.rank = static_cast<int>(rank);
  for (size_t i = 0; i < rank; ++i) {
    t.shape[i] = PyLong_AsLongLong(nb::object(shape[i]).ptr());
    t.stride[i] = PyLong_AsLongLong(nb::object(strides[i]).ptr());
  }
  if (PyErr_Occurred()) throw nb::python_error();
}

TensorView from_torch(nb::handle object) {
  TensorView t;
  nb::object dtype = object.attr("dtype");
  bool known = false;
  for (auto& [type, value] : g_torch.dtypes)
    if (dtype.ptr() == type) t.dtype = value, known = true;
  if (!known) dtype_from_name(nb::cast<std::string>(nb::str(dtype)));  // raises, with the name
  set_dims(t, object.attr("shape"), object.attr("stride")());
  t.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(object.attr("data_ptr")()));
  const int index = nb::cast<int>(object.attr("get_device")());
  t.device = index < 0 ? Device{} : Device{DeviceKind::kCuda, index};
  return t;
}

PyObject* g_error = nullptr;
PyObject* g_unsupported = nullptr;

}  // namespace

TensorView to_view(nb::handle object) {
  if (object.is_none()) return {};
  if (g_torch.load() && PyObject_IsInstance(object.ptr(), g_torch.tensor) == 1) return from_torch(object);
  if (!nb::isinstance<nb::tuple>(object) || nb::len(object) != 6)
    throw nb::type_error(("hyla takes arrays (torch, numpy, cupy, jax), got " + nb::cast<std::string>(nb::repr(object.type()))).c_str());
  TensorView t;
  t.data = reinterpret_cast<void*>(nb::cast<uintptr_t>(object[0]));
  t.dtype = dtype_from_name(nb::cast<std::string>(object[1]));
  set_dims(t, object[2], object[3]);
  t.device = nb::cast<std::string>(object[4]) == "cuda" ? Device{DeviceKind::kCuda, nb::cast<int>(object[5])} : Device{};
  return t;
}

void register_errors(nb::module_& m) {
  g_error = PyErr_NewExceptionWithDoc("hyla.HylaError", "A request that hyla refused; the message names the argument, what was expected and what came.",
                                      PyExc_ValueError, nullptr);
  g_unsupported = PyErr_NewExceptionWithDoc("hyla.UnsupportedError", "A sound request that nothing here computes.", g_error, nullptr);
  m.attr("HylaError") = nb::borrow(g_error);
  m.attr("UnsupportedError") = nb::borrow(g_unsupported);
}

void raise_if_error(const Status& status) {
  if (status.ok()) return;
  PyErr_SetString(status.code() == Code::kUnsupported ? g_unsupported : g_error, status.message().c_str());
  throw nb::python_error();
}

const DeviceCaps& caps_of(Device device) {
  static std::mutex mutex;
  static std::map<std::pair<DeviceKind, int>, DeviceCaps> cache;
  std::lock_guard lock(mutex);
  auto key = std::pair(device.kind, device.index);
  auto it = cache.find(key);
  if (it == cache.end()) it = cache.emplace(key, unwrap(query_device(device))).first;
  return it->second;
}

}  // namespace hyla::py
