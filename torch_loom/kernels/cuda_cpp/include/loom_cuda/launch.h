// kernel<<<grid, block, shared, stream>>>(arguments) is rewritten to a call of launch().
#pragma once

#include <tuple>
#include <type_traits>
#include <utility>

#include "loom_cuda/checks.h"
#include "loom_cuda/shared_addresses.h"
#include "loom_cuda/threads.h"

struct CUstream_st;

namespace loom_cuda {

struct Configuration {
  dim3 grid, block;
  size_t shared_bytes = 0;
  const void* stream = nullptr;
  bool is_cooperative = false;
  template <typename Stream = const void*>
  Configuration(dim3 grid, dim3 block, size_t shared_bytes = 0, Stream stream = {})
      : grid(grid), block(block), shared_bytes(shared_bytes), stream(handle(stream)) {}

 private:
  template <typename Stream>
  static const void* handle(const Stream& stream) {
    if constexpr (std::is_pointer_v<Stream>) {
      return stream;
    } else if constexpr (std::is_integral_v<Stream> || std::is_same_v<Stream, std::nullptr_t>) {
      return reinterpret_cast<const void*>(static_cast<size_t>(stream));  // 0: the default one
    } else {
      return static_cast<::CUstream_st*>(stream);
    }
  }
};

// The kernel's call, and what it is called with: copies, made at the launch.
template <typename Call, typename... Values>
struct Closure {
  Call call;
  std::tuple<Values...> values;
  loom_cuda_argument arguments[sizeof...(Values) + 1] = {};

  static void enter(loom_cuda_runner* to) {
    runner = to;
    forget_shared_addresses();
#ifdef LOOM_CUDA_CHECKED
    for (loom_cuda_range& range : known_ranges) range = {1, 0};  // of an earlier launch
    unchecked_depth = 0;                                         // one that failed left its objects behind
#endif
#ifdef LOOM_CUDA_RACES
    num_shared = 0;
#endif
    gridDim = {to->grid[0], to->grid[1], to->grid[2]};
    blockDim = {to->block[0], to->block[1], to->block[2]};
  }
#ifdef LOOM_CUDA_CHECKED
  // Checks ask where a kernel is, and the compiler takes them for functions that do not.
  __attribute__((noipa))
#endif
  static void call_kernel(const Call& own, std::tuple<Values...>& copies) {
    std::apply(own, copies);
  }
  static void enter_block() {
    blockIdx = {runner->at[0], runner->at[1], runner->at[2]};
    has_waited = false;
    begin_block_of_races();
  }

  static void run(const void* closure, loom_cuda_runner* to) {
    enter(to);
    // On this stack, so that no store of the kernel can change them.
    auto copies = static_cast<const Closure*>(closure)->values;
    const Call own = static_cast<const Closure*>(closure)->call;
    const uint3 size = blockDim;
    do {
      enter_block();
      for (unsigned z = 0; z < size.z; ++z) {
        for (unsigned y = 0; y < size.y; ++y) {
          for (unsigned x = 0; x < size.x; ++x) {
            threadIdx = {x, y, z};
            call_kernel(own, copies);
            settle_races();
            if (has_waited) {
              loom_cuda_end_thread(to, thread_rank());
              return run_rest(closure, to);
            }
          }
        }
      }
    } while (loom_cuda_next_block(to));
  }

  __attribute__((noinline)) static void run_rest(const void* closure, loom_cuda_runner* to) {
    auto copies = static_cast<const Closure*>(closure)->values;
    const Call own = static_cast<const Closure*>(closure)->call;
    const uint3 size = blockDim;
    while (to->next_thread < to->num_threads) {
      const unsigned rank = to->next_thread++;
      threadIdx = {rank % size.x, rank / size.x % size.y, rank / (size.x * size.y)};
      call_kernel(own, copies);
      settle_races();
      loom_cuda_end_thread(to, thread_rank());
    }
  }

  static void thread_index(unsigned* xyz) {
    xyz[0] = threadIdx.x, xyz[1] = threadIdx.y, xyz[2] = threadIdx.z;
  }
  static void release(void* closure) { delete static_cast<Closure*>(closure); }
};

template <typename Call, typename... Values>
static inline void describe(loom_cuda_kernel& kernel, Closure<Call, Values...>& closure) {
  int count = 0;
  std::apply([&](auto&... value) { ((closure.arguments[count++] = {&value, sizeof(value)}), ...); },
             closure.values);
  using Own = Closure<Call, Values...>;
  kernel.abi = LOOM_CUDA_ABI;
#if defined(LOOM_CUDA_RACES)
  kernel.is_checked = LOOM_CUDA_CHECKS_RACES;
#elif defined(LOOM_CUDA_CHECKED)
  kernel.is_checked = 1;
#endif
  kernel.run = &Own::run;
  kernel.run_rest = &Own::run_rest;
  kernel.thread_index = &Own::thread_index;
  kernel.release = &Own::release;
  kernel.closure = &closure;
  kernel.closure_bytes = sizeof(closure);
  kernel.arguments = closure.arguments;
  kernel.num_arguments = count;
}

template <typename Call, typename... Given>
static inline int launch(const char* name, const char* place, Call call, const Configuration& configuration,
                         Given&&... given) {
  using Own = Closure<Call, std::decay_t<Given>...>;
  const Unchecked own_memory;
  auto* closure = new Own{call, std::tuple<std::decay_t<Given>...>(std::forward<Given>(given)...)};
  loom_cuda_kernel kernel{};
  kernel.name = name;
  kernel.place = place;
  describe(kernel, *closure);
  const dim3 &grid = configuration.grid, &block = configuration.block;
  kernel.grid[0] = grid.x, kernel.grid[1] = grid.y, kernel.grid[2] = grid.z;
  kernel.block[0] = block.x, kernel.block[1] = block.y, kernel.block[2] = block.z;
  kernel.shared_bytes = configuration.shared_bytes;
  kernel.stream = const_cast<void*>(configuration.stream);
  kernel.is_cooperative = configuration.is_cooperative;
  return loom_cuda_launch(&kernel);
}

}  // namespace loom_cuda
