// Where algorithms run, and on which stream. Each one is a command of the stream, which a thread of the host
// computes. As thrust's, all wait for it, but for those of par_nosync.
#pragma once

#include "cuda_runtime.h"
#include "loom_cuda/device.h"
#include "thrust/iterator/facade.h"
#include "thrust/system_error.h"

namespace thrust {

struct execution_policy {
  cudaStream_t stream = nullptr;
  bool is_host = false, waits = true;
  execution_policy on(cudaStream_t other) const { return {other, is_host, waits}; }
  template <typename Allocator>
  execution_policy operator()(Allocator&&) const {
    return *this;
  }
};
inline constexpr execution_policy device{}, host{nullptr, true}, seq{nullptr, true};
struct host_execution_policy : execution_policy {
  constexpr host_execution_policy() : execution_policy{nullptr, true} {}
};
using device_execution_policy = execution_policy;
struct device_system_tag : execution_policy {};
using host_system_tag = host_execution_policy;
namespace cuda {
inline constexpr execution_policy par{}, par_nosync{nullptr, false, false};
using tag = device_system_tag;
}  // namespace cuda
namespace omp {
inline constexpr execution_policy par{nullptr, true};
}
namespace system {
namespace cuda {
using thrust::cuda::par;
using thrust::cuda::par_nosync;
using thrust::cuda::tag;
}  // namespace cuda
}  // namespace system

namespace loom_detail {

// In a kernel, a thread computes what it asks for.
inline bool is_here(const execution_policy& policy) { return policy.is_host || loom_cuda_in_kernel(); }

template <typename F, typename... A>
inline void enqueue(const char* name, const execution_policy& policy, F body, const A&... arguments) {
  check(loom_cuda::launch(
            name, "",
            [body](auto&... given) {
              const loom_cuda::Unwatched own_memory;
              body(given...);
            },
            loom_cuda::Configuration(1, 1, 0, policy.stream), loom_detail::bare(arguments)...),
        name);
}
template <typename F, typename... A>
inline void submit(const char* name, const execution_policy& policy, F body, const A&... arguments) {
  if (is_here(policy)) {
    body(loom_detail::bare(arguments)...);
    return;
  }
  enqueue(name, policy, body, arguments...);
  if (!policy.waits) return;
  cudaStreamCaptureStatus status = cudaStreamCaptureStatusNone;
  cudaStreamIsCapturing(policy.stream, &status);
  if (status == cudaStreamCaptureStatusNone) check(cudaStreamSynchronize(policy.stream), name);
}
// A number that a command computes.
template <typename T, typename F, typename... A>
inline T ask(const char* name, const execution_policy& policy, F body, const A&... arguments) {
  if (is_here(policy)) return body(loom_detail::bare(arguments)...);
  T result{};
  enqueue(name, policy, [body, at = &result](auto&... given) { *at = body(given...); }, arguments...);
  check(cudaStreamSynchronize(policy.stream), name);
  return result;
}

template <typename... A>
constexpr execution_policy policy_of() {
  return {nullptr, system_of_all<A...>() == System::host};
}
template <typename T>
constexpr bool is_policy = std::is_base_of_v<execution_policy, std::decay_t<T>>;

}  // namespace loom_detail
}  // namespace thrust

// The form of an algorithm that is given no policy.
#define LOOM_THRUST_FORMS(name)                                                      \
  template <typename First, typename... Rest>                                        \
    requires(!loom_detail::is_policy<First>)                                         \
  inline auto name(First first, Rest... rest) {                                      \
    return ::thrust::name(loom_detail::policy_of<First, Rest...>(), first, rest...); \
  }
