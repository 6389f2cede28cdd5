#include "torch/errors.h"

#include <string>

#include "torch/device.h"

namespace loom::glue {

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
  } catch (const CaptureError& error) {
    constexpr int32_t kStreamCaptureUnsupported = 900;  // CUDA's number
    throw c10::AcceleratorError({__func__, __FILE__, static_cast<uint32_t>(__LINE__)},
                                kStreamCaptureUnsupported, device_name_upper() + " error: " + error.what());
  } catch (const Error& error) {
    TORCH_CHECK(false, error.what());
  }
}

}  // namespace loom::glue
