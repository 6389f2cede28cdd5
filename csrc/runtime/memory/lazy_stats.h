// What waits for device memory on one device, and what has been moved to it.
#pragma once

#include <atomic>
#include <cstdint>

namespace loom::runtime {

struct LazyStats {
  std::atomic<int64_t> host_bytes{0};       // host memory held for what is not on the device yet
  std::atomic<int64_t> pending_tensors{0};  // storages with bytes that have no device memory yet
  // Since the start: bytes for which device memory was taken at first use, and how often.
  std::atomic<int64_t> materialized_bytes{0};
  std::atomic<int64_t> materializations{0};
};

}  // namespace loom::runtime
