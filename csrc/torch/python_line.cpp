#include "torch/python_line.h"

#include <torch/csrc/python_headers.h>

namespace loom::glue {

std::string python_line() {
  if (!Py_IsInitialized() || PyGILState_GetThisThreadState() == nullptr) return "";
  const PyGILState_STATE gil = PyGILState_Ensure();
  std::string line;
  if (PyFrameObject* frame = PyEval_GetFrame(); frame != nullptr) {
    PyCodeObject* code = PyFrame_GetCode(frame);
    Py_ssize_t length = 0;
    if (const char* file = PyUnicode_AsUTF8AndSize(code->co_filename, &length); file != nullptr) {
      line.assign(file, static_cast<size_t>(length));
      line += ':';
      line += std::to_string(PyFrame_GetLineNumber(frame));
    } else {
      PyErr_Clear();
    }
    Py_DECREF(code);
  }
  PyGILState_Release(gil);
  return line;
}

}  // namespace loom::glue
