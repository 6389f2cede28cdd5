// Calls of CUDA's runtime library: what they throw becomes a number, and is kept for who checks the number by
// PyTorch's means.
#pragma once

#include <c10/util/Exception.h>
#include <cuda_runtime_api.h>

#include <exception>
#include <utility>

#include "torch/core/device.h"
#include "torch/launch/blocking_streams.h"
#include "torch/launch/launch.h"

namespace loom::glue {

// Runs `body`; what it throws becomes a number.
template <typename F>
cudaError_t numbered(F&& body) {
  try {
    translated(std::forward<F>(body));
    return cudaSuccess;
  } catch (const c10::AcceleratorError& error) {
    return static_cast<cudaError_t>(set_last_error(error.get_error_code(), std::current_exception()));
  } catch (const c10::OutOfMemoryError&) {
    return static_cast<cudaError_t>(set_last_error(cudaErrorMemoryAllocation, std::current_exception()));
  } catch (const std::exception&) {
    return static_cast<cudaError_t>(set_last_error(cudaErrorUnknown, std::current_exception()));
  }
}

inline bool is_device(int device) { return device >= 0 && device < devices().device_count(); }
inline const runtime::Device& current() { return devices().device(runtime::current_device()); }

inline cudaError_t refuse(cudaError_t error) { return static_cast<cudaError_t>(set_last_error(error)); }

// Calls `body` with a stream, unless there is none of this handle.
template <typename F>
cudaError_t with_stream(cudaStream_t handle, F&& body) {
  return numbered([&] {
    const runtime::StreamRef stream = stream_of(handle);
    TORCH_CHECK(stream.device >= 0, "CUDA error: invalid resource handle: ", handle,
                " is no stream of these devices");
    body(stream);
  });
}
// The same where `body` gives it a command, or waits for it.
template <typename F>
cudaError_t on_stream(cudaStream_t handle, F&& body) {
  return with_stream(handle, [&](runtime::StreamRef stream) {
    order_streams(stream);
    body(stream);
  });
}

}  // namespace loom::glue
