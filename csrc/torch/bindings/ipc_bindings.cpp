#include <torch/csrc/Event.h>
#include <torch/csrc/Exceptions.h>
#include <torch/csrc/Storage.h>

#include <map>
#include <mutex>

#include "runtime/ipc/shared_events.h"
#include "runtime/ipc/shared_memory.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/bindings/stream_bindings.h"
#include "torch/memory/allocator.h"
#include "torch/memory/lazy.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// What is shared is one storage in each process, however often it is received.
class Storages {
 public:
  void add(const c10::Storage& storage) {
    const std::lock_guard<std::mutex> lock(mutex_);
    if (known_.size() > limit_) {
      std::erase_if(known_, [](const auto& entry) { return entry.second.expired(); });
      limit_ = 2 * known_.size() + 64;
    }
    known_.insert_or_assign(
        storage.data(),
        Weak(c10::intrusive_ptr<c10::StorageImpl>::reclaim_copy(storage.unsafeGetStorageImpl())));
  }
  // Without storage when there is none any more.
  c10::intrusive_ptr<c10::StorageImpl> find(const void* address) {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = known_.find(address);
    if (found == known_.end()) return nullptr;
    auto storage = found->second.lock();
    return storage != nullptr && storage->data() == address ? storage : nullptr;
  }

 private:
  using Weak = c10::weak_intrusive_ptr<c10::StorageImpl>;
  std::mutex mutex_;
  std::map<const void*, Weak> known_;
  size_t limit_ = 64;
};

Storages& storages() {
  static auto* const all = new Storages;
  return *all;
}

std::string send(const py::object& object) {
  TORCH_CHECK_TYPE(THPStorage_Check(object.ptr()), "expected a torch.UntypedStorage");
  const c10::Storage storage = THPStorage_Unpack(object.ptr());
  TORCH_CHECK_VALUE(storage.device_type() == device_type(), "expected a storage of a ", device_name(),
                    " device, got one of ", storage.device());
  py::gil_scoped_release no_gil;
  // What waits is taken to the device, and what is copied on write is copied: others may write to it.
  void* const data = device_data(storage.unsafeGetStorageImpl(), /*is_written=*/true);
  runtime::shared::collect(&free_device_memory);
  std::string handle = translated([&] { return runtime::shared::send(data, storage.nbytes()); });
  storages().add(storage);
  return handle;
}

c10::Storage receive(const std::string& handle) {
  runtime::shared::collect(&free_device_memory);
  const runtime::shared::Received received =
      translated([&] { return devices(), runtime::shared::receive(handle); });
  if (auto known = storages().find(received.address)) {
    if (!received.is_own) free_device_memory(received.address);  // that storage has its own use of it
    return c10::Storage(std::move(known));
  }
  const c10::Device device(device_type(), static_cast<c10::DeviceIndex>(received.device));
  c10::Storage storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), received.bytes,
      c10::DataPtr(received.address, received.address, &free_device_memory, device), device_allocator(),
      /*resizable=*/received.is_own));
  storages().add(storage);
  return storage;
}

driver::Event made(const c10::Event& event) {
  TORCH_CHECK(event.eventId() != nullptr, "the event was not recorded");
  return static_cast<driver::Event>(event.eventId());
}

}  // namespace

void bind_ipc(py::module_& m) {
  runtime::set_reclaimer([] { return runtime::shared::collect(&free_device_memory); });
  m.def("ipc_send", guarded([](const py::object& storage) { return py::bytes(send(storage)); }));
  m.def("ipc_receive", guarded([](const py::bytes& handle) {
          const std::string text = handle;
          c10::Storage storage = [&] {
            py::gil_scoped_release no_gil;
            return receive(text);
          }();
          return py::reinterpret_steal<py::object>(THPStorage_Wrap(std::move(storage)));
        }));
  m.def("ipc_collect", guarded([] {
          py::gil_scoped_release no_gil;
          translated([] { runtime::shared::collect(&free_device_memory); });
        }));
  m.def("share_event", guarded([](const py::object& event, bool is_recorded, int64_t device, int64_t stream) {
          const runtime::StreamRef where{static_cast<int>(device), stream};
          translated(
              [&] { runtime::shared_events::share(made(event_of(event)), is_recorded ? &where : nullptr); });
        }));
  m.def("event_handle", guarded([](const py::object& event) {
          return py::bytes(
              translated([&] { return runtime::shared_events::handle_of(made(event_of(event))); }));
        }));
  m.def("open_event", guarded([](const py::object& event, const py::bytes& handle) {
          translated([&] { runtime::shared_events::open(made(event_of(event)), handle); });
        }));
}

}  // namespace loom::glue
