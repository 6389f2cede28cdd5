#pragma once

#include <new>
#include <string>
#include <system_error>

#include "cuda_runtime.h"

namespace thrust {
namespace system {

using std::error_category;
using std::error_code;
using std::system_error;

namespace cuda {
struct errc {};
}  // namespace cuda
namespace loom_detail {
struct Category : std::error_category {
  const char* name() const noexcept override { return "cuda"; }
  std::string message(int error) const override {
    return cudaGetErrorString(static_cast<cudaError_t>(error));
  }
};
}  // namespace loom_detail
inline const std::error_category& cuda_category() {
  static const loom_detail::Category category;
  return category;
}

}  // namespace system
using system::cuda_category;
using system::error_category;
using system::error_code;
using system::system_error;

namespace loom_detail {
inline void check(int error, const char* what) {
  if (error == cudaErrorMemoryAllocation) throw std::bad_alloc();
  if (error != 0) throw system_error(error, cuda_category(), what);
}
}  // namespace loom_detail

}  // namespace thrust
