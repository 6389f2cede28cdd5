#include "torch/core/errors.h"

#include <torch/csrc/Exceptions.h>

#include <string>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

// Reaches Python as torch_loom.errors.SharingError.
struct PythonSharingError final : torch::PyTorchError {
  using PyTorchError::PyTorchError;
  PyObject* python_type() override {
    PyObject* const module = PyImport_ImportModule("torch_loom.errors");
    PyObject* const type = module == nullptr ? nullptr : PyObject_GetAttrString(module, "SharingError");
    Py_XDECREF(module);
    PyErr_Clear();
    return type == nullptr ? PyExc_RuntimeError : type;  // the class lives as long as the process
  }
};

}  // namespace

void rethrow_as_torch() {
  try {
    throw;
  } catch (const OutOfMemory& error) {
    // "LOOM out of memory. …", as in CUDA's message: batch-size finders look for " out of memory.".
    C10_THROW_ERROR(OutOfMemoryError, device_name_upper() + " " + error.what());
  } catch (const InvalidArgument& error) {
    C10_THROW_ERROR(ValueError, error.what());
  } catch (const NotSupported& error) {
    C10_THROW_ERROR(NotImplementedError, error.what());
  } catch (const SharingError& error) {
    throw PythonSharingError(error.what());
  } catch (const CaptureError& error) {
    constexpr int32_t kStreamCaptureUnsupported = 900;  // CUDA's number
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                kStreamCaptureUnsupported, device_name_upper() + " error: " + error.what());
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace loom::glue
