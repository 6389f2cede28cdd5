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

// Set once, under Python's lock, like all that reads it. Not freed: threads may ask until the process ends.
FilePrefixes& prefixes() {
  static auto* const all = new FilePrefixes;
  return *all;
}

// A place in Python code, asked about once.
struct Place {
  bool is_library;
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
    return places_.emplace(key, Place{is_library_file(file), *lines_.insert(std::move(line)).first})
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

void set_library_files(FilePrefixes given) { prefixes() = std::move(given); }

bool is_library_file(std::string_view file) {
  for (const auto& [prefix, is_library] : prefixes()) {
    if (file.starts_with(prefix)) return is_library;
  }
  return false;
}

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
    if (line.empty() || !place.is_library) line = place.line;
    PyFrameObject* outer = place.is_library ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = outer;
  }
  PyGILState_Release(gil);
  return line;
}

}  // namespace loom::glue
