#include "torch/core/errors.h"

#include <torch/csrc/Exceptions.h>

#include <cstdlib>
#include <string>
#include <string_view>
#include <utility>

#include "torch/core/device.h"

namespace loom::glue {

namespace {

// Reaches Python as an error class of ours, which is a RuntimeError.
struct OwnPythonError final : torch::PyTorchError {
  OwnPythonError(const char* module, const char* name, const std::string& what)
      : PyTorchError(what), module(module), name(name) {}
  PyObject* python_type() override {
    PyObject* const imported = PyImport_ImportModule(module);
    PyObject* const type = imported == nullptr ? nullptr : PyObject_GetAttrString(imported, name);
    Py_XDECREF(imported);
    PyErr_Clear();
    return type == nullptr ? PyExc_RuntimeError : type;  // the class lives as long as the process
  }
  const char *const module, *const name;
};

// What CUDA says where the process that shared something has ended: its context is gone.
constexpr CaptureError::Kind kNoContext{201, "cudaErrorDeviceUninitialized", "invalid device context"};

bool is_under_cudas_name() { return device_type() == c10::DeviceType::CUDA; }

// CUDA's text, with ours as its last line.
std::string cuda_words_of(const CaptureError::Kind& kind, const std::string& detail) {
  const char* const blocking = std::getenv("CUDA_LAUNCH_BLOCKING");
  const bool is_blocking = blocking != nullptr && std::string_view(blocking) == "1";
  return c10::str(
      "CUDA error: ", kind.sentence, "\nSearch for `", kind.name,
      "' in https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html for more information.\n",
      is_blocking ? ""
                  : "CUDA kernel errors might be asynchronously reported at some other API call, so the "
                    "stacktrace below might be incorrect.\nFor debugging consider passing "
                    "CUDA_LAUNCH_BLOCKING=1\n",
      "Compile with `TORCH_USE_CUDA_DSA` to enable device-side assertions.\n(", detail, ")");
}

// One of torch_loom.errors, which is a RuntimeError; under the name cuda no more than that.
[[noreturn]] void raise_own(const char* name, const std::string& what) {
  TORCH_CHECK(!is_under_cudas_name(), what);
  throw OwnPythonError("torch_loom.errors", name, what);
}

[[noreturn]] void raise_accelerator_error(int number, const std::string& what) {
  throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, number, what);
}

// The runtime says it as CUDA does, whose sentences programs look for; under the name rbln devices are NPUs.
std::string in_words_of_device(std::string text) {
  if (device_name() != "rbln") return text;
  constexpr std::pair<std::string_view, std::string_view> kWords[] = {
      {" GPU ", " NPU "}, {"CUDA Graphs", "graphs"}, {"PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"}};
  for (const auto& [from, to] : kWords) {
    const size_t at = text.find(from);
    if (at != std::string::npos) text.replace(at, from.size(), to);
  }
  return text;
}

}  // namespace

void raise_implicit_sync(const std::string& what) { raise_own("ImplicitSynchronizationError", what); }

void raise_kernel_check(const std::string& what) {
  throw OwnPythonError("torch_loom.errors", "KernelCheckError", what);
}

void raise_asserted_index(const std::string& what) {
  throw OwnPythonError("torch_loom.device._core.asserts", "AssertedIndexError", what);
}

void rethrow_as_torch() {
  try {
    throw;
  } catch (const OutOfMemory& error) {
    // "LOOM out of memory. …", as in CUDA's message: batch-size finders look for " out of memory.".
    C10_THROW_ERROR(OutOfMemoryError, device_name_upper() + " " + in_words_of_device(error.what()));
  } catch (const InvalidArgument& error) {
    C10_THROW_ERROR(ValueError, error.what());
  } catch (const NotSupported& error) {
    C10_THROW_ERROR(NotImplementedError, error.what());
  } catch (const SharerGone& error) {
    if (is_under_cudas_name())
      raise_accelerator_error(kNoContext.number, cuda_words_of(kNoContext, error.what()));
    raise_own("SharingError", error.what());
  } catch (const SharingError& error) {
    raise_own("SharingError", error.what());
  } catch (const CaptureError& error) {
    raise_accelerator_error(error.kind.number, is_under_cudas_name()
                                                   ? cuda_words_of(error.kind, error.detail)
                                                   : device_name_upper() + " error: " + error.what());
  } catch (const Unusable& error) {
    TORCH_CHECK(!runtime::in_bad_fork(), "Cannot re-initialize ", device_name_upper(),
                " in forked subprocess. To use ", device_name_upper(),
                " with multiprocessing, you must use the 'spawn' start method");
    TORCH_CHECK(false, error.what());
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace loom::glue
