// Lazy device memory. Under the lazy policy a new storage waits: it has a host side, whose memory is taken
// when something is written to it, and no device memory until a device op needs it; the contents move then,
// once.
//
// An unmaterialised storage has a materializer, and its data() is an address that must not be accessed. C++
// code gets device memory by device_data(), and the host side by on_host().
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/FunctionRef.h>

#include <atomic>
#include <functional>
#include <vector>

#include "torch/core/device.h"

namespace loom::glue {

// Leaves the memory policy open until the first tensor is made: `settle` is called then, and closes it.
// Called at first use, before any tensor.
void leave_policy_open(std::function<void()> settle);
// Of each of the program's devices, whether it is lazy.
void close_policy(const std::vector<bool>& are_lazy);

namespace detail {
extern std::atomic<bool> is_policy_open;
void settle_policy();
}  // namespace detail

// Whether new storages of a device wait, and what waits is filled and read on the host side. Initialises at
// first use.
inline bool is_lazy(int device) {
  const runtime::Device& own = devices().device(device);
  if (detail::is_policy_open.load(std::memory_order_relaxed)) [[unlikely]] {
    detail::settle_policy();
  }
  return own.is_lazy();
}

// Whether a storage made now on a device waits: a graph fills its tensors at each replay, on the device.
inline bool new_storages_wait(int device) {
  return is_lazy(device) && !runtime::is_captured(runtime::current_stream_of(device));
}

namespace detail {
// For a storage with a materializer, which may also be copy-on-write's.
bool waits(const c10::StorageImpl* storage);
}  // namespace detail

inline bool is_unmaterialised(const c10::StorageImpl* storage) {
  return storage != nullptr && storage->has_materializer() && detail::waits(storage);
}
// The devices that an unmaterialised storage belongs to.
const runtime::Runtime* world_of_unmaterialised(const c10::StorageImpl* storage);
inline bool is_unmaterialised(const at::Tensor& tensor) {
  return is_unmaterialised(tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl());
}

// Takes device memory for an unmaterialised storage and moves its contents there, complete when this returns,
// so that every stream may use it. Does nothing for other storages. Safe from several threads: one of them
// moves. Throws OutOfMemoryError, and the failure of earlier work on the stream of the move; the storage
// waits on then, with its contents.
void take_device_memory(c10::StorageImpl* storage);

inline void take_device_memory(const at::Tensor& tensor) {
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (storage != nullptr && storage->has_materializer()) [[unlikely]]
    take_device_memory(storage);
}

// The device memory of a storage. Copy-on-write memory is given up only for writing.
inline void* device_data(c10::StorageImpl* storage, bool is_written) {
  if (storage->has_materializer()) [[unlikely]]
    take_device_memory(storage);
  return is_written ? storage->mutable_data() : const_cast<void*>(storage->data());
}

// An allocator of waiting memory on the current device, for a storage that make_unmaterialised() is called on
// next.
c10::Allocator* unmaterialised_allocator();
void make_unmaterialised(c10::StorageImpl* storage);

// Changes the size of a storage that waits, or that has no bytes, and keeps what fits of its contents. The
// result waits.
void resize_unmaterialised(c10::StorageImpl* storage, size_t bytes);

// Under the lazy policy, calls `body` with a tensor of the engine over the host side of a tensor that waits
// or has no bytes; what the body changes of its size or memory is carried over. Returns false, and does not
// call it, when the tensor is on the device or a graph captures what is done to it.
bool on_host(const at::Tensor& tensor, c10::function_ref<void(at::Tensor& host)> body);

}  // namespace loom::glue
