#include "torch/memory/lazy.h"

#include <ATen/core/Tensor.h>
#include <Python.h>
#include <c10/core/CPUAllocator.h>
#include <sys/mman.h>

#include <array>
#include <cstring>
#include <mutex>

#include "runtime/capture.h"
#include "torch/core/extension_points.h"
#include "torch/engine/engine.h"
#include "torch/engine/output_allocation.h"
#include "torch/memory/allocator.h"
#include "torch/memory/host_files.h"
#include "torch/memory/register.h"
#include "torch/memory/worlds.h"

namespace loom::glue {

namespace detail {

std::atomic<bool> is_policy_open{false};

}  // namespace detail

namespace {

std::function<void()>& policy_settler() {
  static auto* const settler = new std::function<void()>;  // leaked: it may hold a Python object
  return *settler;
}

// What a storage that waits holds in place of memory.
struct Waiting {
  Waiting(int device_index, int64_t stream_id, size_t size)
      : own(devices().device(device_index)),
        device(device_index),
        stream(stream_id),
        bytes(size),
        is_in_file(host_files::is_open() && size >= host_files::kLeastBytes),
        pin(own.runtime()) {
    ++stats().pending_tensors;
  }
  ~Waiting() {
    --stats().pending_tensors;
    if (host) stats().host_bytes -= static_cast<int64_t>(bytes);
  }
  Waiting(const Waiting&) = delete;
  Waiting& operator=(const Waiting&) = delete;

  void set_host(c10::DataPtr memory) {
    host = std::move(memory);
    stats().host_bytes += static_cast<int64_t>(bytes);
  }
  runtime::LazyStats& stats() const { return own.lazy_stats; }

  runtime::Device& own;
  const int device;
  const int64_t stream;  // that was current when the storage was made
  const size_t bytes;
  bool is_in_file;    // what is written to its host side
  c10::DataPtr host;  // null until something is written or read
  const runtime::worlds::Pin pin;
};

void mark_materialised(void* waiting) { delete static_cast<Waiting*>(waiting); }

// Address of unmaterialised storages: PyTorch takes a null address for an invalid storage, and reading this
// address by mistake faults.
void* nowhere() {
  static void* const address = [] {
    void* page = mmap(nullptr, 4096, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    TORCH_CHECK(page != MAP_FAILED, "no address space left");
    return page;
  }();
  return address;
}

Waiting* host_side_of(const c10::StorageImpl* storage) {
  return static_cast<Waiting*>(
      storage->data_ptr().get_deleter() == &mark_materialised ? storage->data_ptr().get_context() : nullptr);
}

c10::DataPtr host_side_data(std::unique_ptr<Waiting> waiting) {
  const c10::Device own(device_type(), static_cast<c10::DeviceIndex>(waiting->device));
  return {nowhere(), waiting.release(), &mark_materialised, own};
}

// Held while the host side of a storage is used or moved. The mutexes are not in Waiting, which the move
// destroys, and are shared by storages; recursive, since an out-of-memory observer may use tensors. A thread
// that waits for a mutex releases Python's lock: the holder may need it.
class HostSideLock {
 public:
  explicit HostSideLock(const c10::StorageImpl* storage) : lock_(mutex_of(storage), std::try_to_lock) {
    if (lock_.owns_lock()) [[likely]] {
      return;
    }
    PyThreadState* state = Py_IsInitialized() && PyGILState_Check() ? PyEval_SaveThread() : nullptr;
    lock_.lock();
    if (state != nullptr) PyEval_RestoreThread(state);
  }

 private:
  static std::recursive_mutex& mutex_of(const c10::StorageImpl* storage) {
    static std::array<std::recursive_mutex, 64> mutexes;
    return mutexes[reinterpret_cast<uintptr_t>(storage) / sizeof(c10::StorageImpl) % mutexes.size()];
  }

  std::unique_lock<std::recursive_mutex> lock_;
};

c10::DataPtr host_memory(const Waiting& waiting) {
  if (waiting.is_in_file) return host_files::allocate(waiting.bytes);
  const OutputAllocations::Suspended on_the_host;
  return c10::GetCPUAllocator()->allocate(waiting.bytes);
}

// The stream on which contents move, whose pool gives the memory: that of a tensor made eagerly. A program
// calls record_stream() for other streams that use the tensor, not for this one. A graph must neither repeat
// the move nor own the memory: for a captured stream it is the default stream.
int64_t stream_for_move(const Waiting& waiting) {
  return runtime::is_captured({waiting.device, waiting.stream}) ? 0 : waiting.stream;
}

class CurrentStream {
 public:
  CurrentStream(int device, int64_t stream) : device_(device), previous_(runtime::current_stream(device)) {
    runtime::set_current_stream(device, stream);
  }
  ~CurrentStream() { runtime::set_current_stream(device_, previous_); }
  CurrentStream(const CurrentStream&) = delete;
  CurrentStream& operator=(const CurrentStream&) = delete;

 private:
  const int device_;
  const int64_t previous_;
};

class UnmaterialisedAllocator final : public c10::Allocator {
 public:
  c10::DataPtr allocate(size_t bytes) override {
    devices();  // initialises before the current device is asked for
    const int device = runtime::current_device();
    if (bytes == 0) return {nullptr, c10::Device(device_type(), static_cast<c10::DeviceIndex>(device))};
    return host_side_data(std::make_unique<Waiting>(device, runtime::current_stream(device), bytes));
  }
  void copy_data(void* destination, const void* source, size_t bytes) const override {
    device_allocator()->copy_data(destination, source, bytes);
  }
};

// Storages that Python makes by themselves: torch.UntypedStorage(8, device="loom"), and those of torch.load.
c10::intrusive_ptr<c10::StorageImpl> make_storage(c10::StorageImpl::use_byte_size_t, c10::SymInt bytes,
                                                  c10::DataPtr data, c10::Allocator* allocator,
                                                  bool resizable) {
  const c10::StorageImpl::use_byte_size_t in_bytes;
  if (data) {
    return c10::make_intrusive<c10::StorageImpl>(in_bytes, std::move(bytes), std::move(data), allocator,
                                                 resizable);
  }
  const bool waits = new_storages_wait(runtime::current_device());
  auto storage = c10::make_intrusive<c10::StorageImpl>(
      in_bytes, bytes, waits ? unmaterialised_allocator() : allocator, resizable);
  if (waits) make_unmaterialised(storage.get());
  return storage;
}

}  // namespace

void leave_policy_open(std::function<void()> settle) {
  policy_settler() = std::move(settle);
  detail::is_policy_open.store(true, std::memory_order_release);
}

void close_policy(const std::vector<bool>& are_lazy) {
  for (size_t index = 0; index < are_lazy.size(); ++index) {
    devices().device(static_cast<int>(index)).set_lazy(are_lazy[index]);
  }
  detail::is_policy_open.store(false, std::memory_order_release);
}

// Threads that come here at once all ask, and get the same answer.
void detail::settle_policy() {
  std::atomic_thread_fence(std::memory_order_acquire);
  policy_settler()();
}

void register_storages() { register_storage_factory(&make_storage); }

bool detail::waits(const c10::StorageImpl* storage) { return host_side_of(storage) != nullptr; }

c10::Allocator* unmaterialised_allocator() {
  static auto* allocator = new UnmaterialisedAllocator;  // leaked, as the device's
  return allocator;
}

void make_unmaterialised(c10::StorageImpl* storage) {
  storage->set_allocator(device_allocator());
  if (host_side_of(storage) != nullptr) storage->set_materializer(&take_device_memory);
}

const runtime::Runtime* world_of_unmaterialised(const c10::StorageImpl* storage) {
  const Waiting* const waiting = host_side_of(storage);
  return waiting == nullptr ? nullptr : &waiting->own.runtime();
}

void take_device_memory(c10::StorageImpl* storage) {
  const HostSideLock lock(storage);
  const Waiting* waiting = host_side_of(storage);
  if (waiting == nullptr) return;
  const int device = waiting->device;
  check_world(storage, device, "taking device memory");
  const int64_t user_stream = runtime::current_stream(device);
  c10::DataPtr memory;
  {
    const CurrentDevice current(device);
    const CurrentStream stream(device, stream_for_move(*waiting));
    // No capture under way is concerned: the stream is not captured.
    const runtime::capture::Relaxed relaxed;
    void* const taken = take_device_memory(waiting->own, waiting->bytes);
    memory = {taken, taken, &free_device_memory, storage->device()};
    // The memory may come from the cache with work pending on its stream. A copy from pageable memory waits
    // for that; without one, only another stream must.
    translated([&] {
      const runtime::StreamRef order = runtime::current_stream_of(device);
      if (waiting->host) {
        runtime::copy_and_wait(order, memory.get(), waiting->host.get(), waiting->bytes);
      } else if (user_stream != order.id) {
        runtime::drain_stream(order);
      }
    });
  }
  runtime::LazyStats& stats = waiting->stats();
  stats.materialized_bytes += static_cast<int64_t>(waiting->bytes);
  ++stats.materializations;
  storage->set_data_ptr_noswap(std::move(memory));
  storage->clear_materializer();
}

void resize_unmaterialised(c10::StorageImpl* storage, size_t bytes) {
  const HostSideLock lock(storage);
  const Waiting* old = host_side_of(storage);
  c10::DataPtr data(nullptr, storage->device());
  if (bytes != 0) {
    const int device = storage->device().index();
    const int64_t stream = old == nullptr ? runtime::current_stream(device) : old->stream;
    auto waiting = std::make_unique<Waiting>(device, stream, bytes);
    if (old != nullptr) waiting->is_in_file = old->is_in_file && bytes >= host_files::kLeastBytes;
    if (old != nullptr && old->host) {
      waiting->set_host(host_memory(*waiting));
      std::memcpy(waiting->host.get(), old->host.get(), std::min(bytes, old->bytes));
    }
    data = host_side_data(std::move(waiting));
  }
  storage->clear_materializer();
  storage->set_data_ptr_noswap(std::move(data));
  storage->set_nbytes(bytes);
  make_unmaterialised(storage);
}

namespace {

at::Tensor host_tensor(const at::Tensor& tensor, void* data) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::DeviceType engine = engine_type(glue::device_of(tensor));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), impl->unsafe_storage().nbytes(),
      c10::DataPtr(data, c10::Device(engine)), c10::GetAllocator(engine), /*resizable=*/true));
  const c10::DispatchKeySet math_bits = impl->key_set() & kMathBits;
  at::Tensor host = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), engine_keys(glue::device_of(tensor)) | math_bits, impl->dtype());
  host.unsafeGetTensorImpl()->set_sizes_and_strides(impl->sizes(), impl->strides(), impl->storage_offset());
  return host;
}

// What a kernel that resizes its result changed of the host side.
void carry_over(const at::Tensor& tensor, const at::Tensor& host, const void* lent) {
  c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  c10::StorageImpl* host_storage = host.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  if (host_storage->nbytes() != storage->nbytes() || host_storage->data() != lent) {
    const size_t bytes = host_storage->nbytes();
    const int device = storage->device().index();
    auto waiting = std::make_unique<Waiting>(device, runtime::current_stream(device), bytes);
    if (const Waiting* const old = host_side_of(storage)) {
      waiting->is_in_file = old->is_in_file && bytes >= host_files::kLeastBytes;
    }
    if (host_storage->data() != nullptr && waiting->is_in_file) {
      waiting->set_host(host_memory(*waiting));
      std::memcpy(waiting->host.get(), host_storage->data(), bytes);
    } else if (host_storage->data() != nullptr) {
      waiting->set_host(std::move(host_storage->_mutable_data_ptr_no_checks()));
    }
    storage->clear_materializer();
    storage->set_data_ptr_noswap(host_side_data(std::move(waiting)));
    storage->set_nbytes(bytes);
    make_unmaterialised(storage);
  }
  if (host.sizes() != tensor.sizes() || host.strides() != tensor.strides()) {
    impl->set_sizes_and_strides(host.sizes(), host.strides(), host.storage_offset());
  }
}

}  // namespace

bool on_host(const at::Tensor& tensor, c10::function_ref<void(at::Tensor&)> body) {
  check_world(tensor, "filling a tensor");
  if (!new_storages_wait(tensor.device().index())) return false;
  c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
  const HostSideLock lock(storage);
  Waiting* waiting = host_side_of(storage);
  if (waiting == nullptr && storage->nbytes() != 0) return false;
  // An engine without arithmetic has no contents, and no memory for them.
  if (waiting != nullptr && !waiting->host && waiting->own.runs_kernels()) {
    waiting->set_host(host_memory(*waiting));
  }
  void* data = waiting == nullptr ? nullptr : waiting->host.get();
  at::Tensor host = host_tensor(tensor, data);
  body(host);
  carry_over(tensor, host, data);
  return true;
}

}  // namespace loom::glue
