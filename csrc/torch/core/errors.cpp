#include "torch/core/errors.h"

#include <torch/csrc/Exceptions.h>

#include <cstdlib>
#include <string>
#include <string_view>

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

// In CUDA's name the text is CUDA's, with ours as its last line.
std::string words_of(const CaptureError& error) {
  if (device_type() != c10::DeviceType::CUDA) return device_name_upper() + " error: " + error.what();
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const bool is_blocking = blocking != nullptr && std::string_view(blocking) == "1";
  return c10::str(
      "CUDA error: ", error.kind.sentence, "\nSearch for `", error.kind.name,
      "' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n",
      is_blocking ? ""
                  : "CUDA kernel errors might be asynchronously reported at some other API call, so the "
                    "stacktrace below might be incorrect.\nFor debugging consider passing "
                    "CUDA_LAUNCH_BLOCKING=1\n",
      "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n(", error.detail, ")");
}

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
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error.kind.number,
                                words_of(error));
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace loom::glue
