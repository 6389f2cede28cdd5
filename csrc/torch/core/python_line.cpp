#include "torch/core/python_line.h"

#include <torch/csrc/python_headers.h>

#include <string_view>

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

// Files that a program calls and did not write: PyTorch's, and those of torch.loom.
bool is_librarys(std::string_view file) {
  return file.find("/site-packages/torch/") != std::string_view::npos ||
         file.find("/torch_loom/device/") != std::string_view::npos;
}

std::string line_of(PyFrameObject* frame) {
  PyCodeObject* code = PyFrame_GetCode(frame);
  std::string line(file_of(code));
  Py_DECREF(code);
  return line.empty() ? line : line + ':' + std::to_string(PyFrame_GetLineNumber(frame));
}

}  // namespace

std::string python_line() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return "";
  const PyGILState_STATE gil = PyGILState_Ensure();
  std::string line;
  PyFrameObject* frame = PyEval_GetFrame();
  Py_XINCREF(reinterpret_cast<PyObject*>(frame));
  while (frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    const bool is_own = is_librarys(file_of(code));
    Py_DECREF(code);
    // The innermost line serves until one of the program's is found.
    if (line.empty() || !is_own) line = line_of(frame);
    PyFrameObject* outer = is_own ? PyFrame_GetBack(frame) : nullptr;
    Py_DECREF(frame);
    frame = outer;
  }
  PyGILState_Release(gil);
  return line;
}

}  // namespace loom::glue
