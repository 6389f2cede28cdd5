#include "torch/core/python_errors.h"

#include <c10/util/Exception.h>
#include <pybind11/pybind11.h>
#include <torch/csrc/Exceptions.h>

#include <new>

namespace loom::glue {

namespace {

bool is_refusal(PyObject* type) {
  return PyErr_GivenExceptionMatches(type, PyExc_Exception) != 0 &&
         PyErr_GivenExceptionMatches(type, PyExc_MemoryError) == 0;
}

}  // namespace

bool is_python_error(const std::exception& error) {
  return dynamic_cast<const python_error*>(&error) != nullptr;
}

std::string text_of_refusal() {
  try {
    throw;
  } catch (const c10::Error& error) {
    return error.what_without_backtrace();
  } catch (python_error& error) {
    const pybind11::gil_scoped_acquire gil;
    if (error.type == nullptr) error.persist();
    if (!is_refusal(error.type)) throw;
    return error.what();
  } catch (pybind11::error_already_set& error) {
    const pybind11::gil_scoped_acquire gil;
    if (!is_refusal(error.type().ptr())) {
      error.restore();
      python_error own;
      own.persist();
      throw own;
    }
    return error.what();
  } catch (const std::bad_alloc&) {
    throw;
  } catch (const std::exception& error) {
    return error.what();
  }
}

void warn_python(const std::string& message) {
  torch::PyWarningHandler handler;
  TORCH_WARN(message);
}

}  // namespace loom::glue
