// What waits in host memory for its first use on a device (chips whose memory policy is lazy).
#pragma once

#include <atomic>
#include <cstdint>

namespace loom::runtime {

// One per device. Whoever moves tensors counts here; the memory statistics read it.
struct LazyStats {
  std::atomic<int64_t> host_bytes{0};          // bytes held on the host by tensors not yet on the device
  std::atomic<int64_t> pending_tensors{0};     // how many storages those are
  std::atomic<int64_t> materialized_bytes{0};  // bytes moved to the device so far
  std::atomic<int64_t> materializations{0};    // how many moves those were
};

}  // namespace loom::runtime
