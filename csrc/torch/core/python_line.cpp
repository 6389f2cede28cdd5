#include "torch/core/python_line.h"

#include <torch/csrc/python_headers.h>

#include <string>
#include <string_view>
#include <unordered_map>
#include <unordered_set>
#include <utility>

namespace loom::glue {

namespace {

std::string_view file_of(PyCodeObject* code) {
  Py_ssize_t length = 0;
  const char* file = PyUnicode_AsUTF8AndSize(code->co_filename, &length);
  if (file == nullptr) {
    PyErr_Clear();
    return {};
  }
  return {file, static_cast<size_t>(length)};
}

// Where Python's own modules are, with a slash at the end; empty where that is not to be found out.
const std::string& standard_library() {
  static const auto* const folder = [] {
    auto* const found = new std::string;
    PyObject* const os = PyImport_ImportModule("os");
    PyObject* const file = os == nullptr ? nullptr : PyObject_GetAttrString(os, "__file__");
    if (const char* text = file == nullptr ? nullptr : PyUnicode_AsUTF8(file)) {
      const std::string_view path(text);
      *found = path.substr(0, path.rfind('/') + 1);
    }
    PyErr_Clear();
    Py_XDECREF(file);
    Py_XDECREF(os);
    return found;
  }();
  return *folder;
}

// Files that a program calls and did not write: Python's, PyTorch's, and those of torch.loom.
bool is_librarys(std::string_view file) {
  const auto has = [file](std::string_view part) { return file.find(part) != std::string_view::npos; };
  if (has("/site-packages/torch/") || has("/torch_loom/device/") || has("/torch_loom/_register/"))
    return true;
  if (has("/site-packages/") || has("/dist-packages/")) return false;
  const std::string& own = standard_library();
  return file.starts_with("<frozen ") || (!own.empty() && file.starts_with(own));
}

// A place in Python code, asked about once.
struct Place {
  bool is_librarys;
  std::string_view line;
};

// By code object and instruction. Under Python's lock.
class Places {
 public:
  const Place& of(PyFrameObject* frame) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const auto key = std::make_pair(static_cast<const void*>(code), position_in(frame));
    const auto known = places_.find(key);
    if (known != places_.end()) {
      Py_DECREF(code);
      return known->second;
    }
    // Its own reference keeps the address from becoming another's.
    if (places_.size() >= kKept) clear();
    const std::string_view file = file_of(code);
    std::string line(file);
    if (!line.empty()) line += ':' + std::to_string(PyFrame_GetLineNumber(frame));
    return places_.emplace(key, Place{is_librarys(file), *lines_.insert(std::move(line)).first})
        .first->second;
  }

 private:
  static constexpr size_t kKept = 16384;

  struct Hash {
    size_t operator()(const std::pair<const void*, int>& key) const {
      return (reinterpret_cast<uintptr_t>(key.first) >> 4) * 0x9E3779B97F4A7C15ull +
             static_cast<size_t>(key.second);
    }
  };

  // Where the frame is: cheaper than the line, which is counted from the function's first.
  static int position_in(PyFrameObject* frame) {
#if PY_VERSION_HEX >= 0x030B0000
    return PyFrame_GetLasti(frame);
#else
    return PyFrame_GetLineNumber(frame);
#endif
  }

  void clear() {
    for (const auto& [key, place] : places_) Py_DECREF(static_cast<PyObject*>(const_cast<void*>(key.first)));
    places_.clear();
  }

  std::unordered_map<std::pair<const void*, int>, Place, Hash> places_;
  std::unordered_set<std::string> lines_;  // kept: queued ops refer to them
};

}  // namespace

std::string_view python_line() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return "";
  static auto* places = new Places;
  const PyGILState_STATE gil = PyGILState_Ensure();
  std::string_view line;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  while (frame != nullptr) {
    const Place place = places->of(frame);
    // The innermost line serves until one of the program's is found.
    if (line.empty() || !place.is_librarys) line = place.line;
    PyFrameObject* outer = place.is_librarys ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = outer;
  }
  PyGILState_Release(gil);
  return line;
}

}  // namespace loom::glue
