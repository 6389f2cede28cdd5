#include "torch/bindings/memory_bindings.h"

#include <ATen/Context.h>
#include <ATen/core/CachingHostAllocator.h>
#include <pybind11/stl.h>
#include <torch/csrc/Exceptions.h>

#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <unordered_set>

#include "runtime/worlds.h"
#include "torch/bindings/bindings.h"
#include "torch/bindings/guarded.h"
#include "torch/core/device.h"
#include "torch/memory/alloc_conf.h"
#include "torch/memory/host_allocator.h"
#include "torch/memory/host_files.h"

namespace py = pybind11;

namespace loom::glue {

namespace {

// PyTorch asks whether memory is pinned only where it has seen the device in use.
void note_first_use() { at::globalContext().lazyInitDevice(device_type()); }

runtime::Device& device_at(int64_t index) {
  check_device_index(index);
  return devices().device(static_cast<int>(index));
}

runtime::CachingAllocator& allocator_of(int64_t index) { return *device_at(index).allocator; }

py::dict memory_stats(int64_t index) {
  runtime::Device& device = device_at(index);
  py::dict out;
  for (const auto& [name, value] : runtime::named_stats(device.allocator->stats()))
    out[py::str(name)] = value;
  const runtime::LazyStats& lazy = device.lazy_stats;
  out["lazy.host_bytes"] = lazy.host_bytes.load();
  out["lazy.pending_tensors"] = lazy.pending_tensors.load();
  out["lazy.materialized_bytes"] = lazy.materialized_bytes.load();
  out["lazy.materializations"] = lazy.materializations.load();
  return out;
}

// One figure in bytes: allocated (0), its peak (1), reserved (2), its peak (3). Programs ask for it at every
// step, so it builds no dictionary. An index of −1 means the current device; −1 is returned if none is in
// use.
int64_t memory_figure(int64_t index, int figure) {
  if (index < 0) {
    if (!runtime::is_initialized() || runtime::in_bad_fork()) return -1;
    index = runtime::current_device();
  }
  const runtime::AllocatorStats stats = allocator_of(index).stats();
  const runtime::Stat& stat = (figure < 2 ? stats.allocated_bytes : stats.reserved_bytes)[0];
  return figure % 2 == 0 ? stat.current : stat.peak;
}

template <typename Stat>
py::dict host_stat(const Stat& stat) {
  py::dict out;
  if constexpr (std::is_same_v<Stat, c10::CachingAllocator::DurationStat>) {
    out["total"] = stat.total;
    out["max"] = stat.max;
    out["min"] = stat.min;
    out["count"] = stat.count;
    out["avg"] = stat.count == 0 ? 0 : stat.total / stat.count;
  } else {
    out["current"] = stat.current;
    out["peak"] = stat.peak;
    out["allocated"] = stat.allocated;
    out["freed"] = stat.freed;
  }
  return out;
}

// Nested, with the names of torch.cuda.
py::dict host_memory_stats() {
  const at::HostStats stats = at::getHostAllocator(device_type())->get_stats();
  py::dict out;
  out["num_host_alloc"] = stats.num_host_alloc;
  out["num_host_free"] = stats.num_host_free;
  out["bucket_allocation"] = stats.bucket_allocation;
  out["active_requests"] = host_stat(stats.active_requests);
  out["active_bytes"] = host_stat(stats.active_bytes);
  out["allocations"] = host_stat(stats.allocations);
  out["allocated_bytes"] = host_stat(stats.allocated_bytes);
  out["host_alloc_time"] = host_stat(stats.host_alloc_time);
  out["host_free_time"] = host_stat(stats.host_free_time);
  return out;
}

// What raw_alloc gave out: raw_delete frees nothing else, since what a tensor holds is the tensor's to free.
// Leaked, as the devices are.
struct RawMemory {
  std::mutex mutex;
  std::unordered_set<void*> addresses;

  bool remove(void* address) {
    const std::lock_guard<std::mutex> lock(mutex);
    return addresses.erase(address) != 0;
  }
};

RawMemory& raw_memory() {
  static auto* const all = new RawMemory;
  return *all;
}

uintptr_t raw_alloc(int64_t bytes, int64_t index, int64_t stream) {
  TORCH_CHECK_VALUE(bytes >= 0, "size must be 0 or more bytes, got ", bytes);
  void* const address = translated([&] {
    devices().stream(static_cast<int>(index), stream);  // refuses a stream that does not exist
    return allocator_of(index).allocate(static_cast<size_t>(bytes), stream);
  });
  if (address != nullptr) note_raw_memory(address);
  return reinterpret_cast<uintptr_t>(address);
}

void raw_delete(uintptr_t address) {
  void* const pointer = reinterpret_cast<void*>(address);
  if (pointer == nullptr) return;
  devices();
  const runtime::Place place = runtime::locate(pointer);
  TORCH_CHECK(place.device != nullptr, "invalid device pointer: ", pointer, " is not memory of a ",
              device_name(), " device");
  void* const block = place.device_address;
  TORCH_CHECK(raw_memory().remove(block), "invalid device pointer: ", pointer,
              " is not a live allocation of caching_allocator_alloc() (freed twice?)");
  translated([&] { place.device->allocator->deallocate(block); });
}

// "loom:0", "pinned memory", or "cpu" for what is neither.
std::string place_of(uintptr_t address) {
  const runtime::Place place = runtime::locate(reinterpret_cast<const void*>(address));
  if (place.kind == driver::AddressKind::kPinnedHost) return "pinned memory";
  if (place.device == nullptr) return "cpu";
  return device_name() + ':' + std::to_string(place.device->logical);
}

// Allocations of the calling thread go to the pool.
void begin_allocate_to_pool(int64_t index, runtime::PoolId id, const runtime::SourceRef& source) {
  const auto filter = [thread = std::this_thread::get_id()](int64_t) {
    return std::this_thread::get_id() == thread;
  };
  translated([&] { allocator_of(index).begin_allocate_to_pool(id, filter, /*capturing=*/false, source); });
}

void attach_out_of_memory_observer(py::object observer) {
  auto* kept = new py::object(std::move(observer));  // leaked: the devices are never destroyed either
  const auto call = [kept](int device, int64_t alloc_bytes, int64_t limit_bytes, int64_t free_bytes) {
    py::gil_scoped_acquire gil;
    try {
      (*kept)(device, alloc_bytes, limit_bytes, free_bytes);
    } catch (py::error_already_set& error) {
      error.discard_as_unraisable(
          "an observer of out of memory");  // what ran out stays the error that is raised
    }
  };
  for (int device = 0; device < devices().device_count(); ++device) {
    allocator_of(device).attach_out_of_memory_observer(call);
  }
}

// A pluggable allocator as Python holds it.
struct Source {
  runtime::SourceRef source;
};

runtime::SourceRef ref(const std::optional<Source>& source) {
  return source.has_value() ? source->source : nullptr;
}

Source make_source(uintptr_t allocate, uintptr_t free) {
  return {translated([&] {
    return std::make_shared<const runtime::MemorySource>(
        reinterpret_cast<runtime::MemorySource::Allocate>(allocate),
        reinterpret_cast<runtime::MemorySource::Free>(free));
  })};
}

// Registered memory is the host's, whichever devices the program sees.
driver::Driver& program_driver() {
  devices();
  return runtime::worlds::program()->device(0).driver();
}

void bind_sources(py::module_& m) {
  py::class_<Source>(m, "MemorySource")
      .def(py::init([](uintptr_t allocate, uintptr_t free) { return guarded(make_source)(allocate, free); }),
           py::arg("allocate"), py::arg("free"));
  m.def("set_memory_source",
        [](const std::optional<Source>& source) { runtime::memory_mode::set_source(ref(source)); });
  m.def("has_memory_source", [] { return runtime::memory_mode::source() != nullptr; });
  m.def("set_caching", &runtime::memory_mode::set_caching);
  m.def("caching", &runtime::memory_mode::caching);
  m.def("lock_free_mutex", [] {
    const py::gil_scoped_release no_gil;
    runtime::FreeMutex::lock();
  });
  m.def("unlock_free_mutex", &runtime::FreeMutex::unlock);
  m.def("register_memory", guarded([](uintptr_t address, size_t bytes) {
          note_first_use();
          translated([&] { program_driver().register_memory(-1, reinterpret_cast<void*>(address), bytes); });
        }));
  m.def("unregister_memory", guarded([](uintptr_t address) {
          const py::gil_scoped_release no_gil;
          translated([&] {
            // Copies may be under way.
            for (int device = 0; device < devices().device_count(); ++device) {
              runtime::synchronize_device(device);
            }
            program_driver().unregister_memory(reinterpret_cast<void*>(address));
          });
        }));
  m.def("host_allocator", guarded([] {
          note_first_use();
          return reinterpret_cast<uintptr_t>(pinned_allocator());
        }));
}

void bind_pools(py::module_& m) {
  m.def("new_pool_id", &runtime::new_pool_id, py::arg("user_created"));
  m.def("use_pool",
        guarded([](int64_t index, runtime::PoolId id, bool use_on_oom, bool no_split,
                   const std::optional<Source>& source) {
          translated([&] { allocator_of(index).use_pool(id, use_on_oom, no_split, ref(source)); });
        }),
        py::arg("index"), py::arg("pool"), py::arg("use_on_oom"), py::arg("no_split"),
        py::arg("source") = py::none());
  m.def("release_pool", guarded([](int64_t index, runtime::PoolId id) {
          translated([&] { allocator_of(index).release_pool(id); });
        }));
  m.def("pool_use_count",
        guarded([](int64_t index, runtime::PoolId id) { return allocator_of(index).pool_use_count(id); }));
  m.def("begin_allocate_to_pool",
        guarded([](int64_t index, runtime::PoolId id, const std::optional<Source>& source) {
          begin_allocate_to_pool(index, id, ref(source));
        }),
        py::arg("index"), py::arg("pool"), py::arg("source") = py::none());
  m.def("end_allocate_to_pool", guarded([](int64_t index, runtime::PoolId id) {
          translated([&] { allocator_of(index).end_allocate_to_pool(id); });
        }));
}

}  // namespace

void note_raw_memory(void* block) {
  const std::lock_guard<std::mutex> lock(raw_memory().mutex);
  raw_memory().addresses.insert(block);
}

void prepare_memory() {
  apply_alloc_conf();
  for (int device = 0; device < devices().device_count(); ++device) {
    allocator_of(device).attach_out_of_memory_observer([](int index, int64_t bytes, int64_t, int64_t) {
      const runtime::AllocatorStats stats = allocator_of(index).stats();
      c10::reportOutOfMemoryToProfiler(bytes, static_cast<size_t>(stats.allocated_bytes[0].current),
                                       static_cast<size_t>(stats.reserved_bytes[0].current),
                                       c10::Device(device_type(), static_cast<c10::DeviceIndex>(index)));
    });
  }
}

// Runs the handlers of signals that have come, in Python's main thread; what one raises ends the wait.
static void check_signals() {
  if (Py_IsInitialized() == 0 || PyGILState_GetThisThreadState() == nullptr) return;
  const py::gil_scoped_acquire gil;
  if (PyErr_CheckSignals() == 0) return;
  python_error raised;
  raised.persist();
  throw raised;
}

void bind_memory(py::module_& m) {
  runtime::set_blocking_call([](void (*body)(void*), void* context) {
    if (Py_IsInitialized() == 0 || PyGILState_Check() == 0) {
      body(context);
      return;
    }
    py::gil_scoped_release no_gil;
    body(context);
  });
  runtime::set_interrupt_check(check_signals);
  m.def("check_alloc_conf", guarded(check_alloc_conf));
  m.def("memory_stats", guarded(memory_stats));
  m.def("memory_figure", guarded(memory_figure));
  m.def("mem_get_info", guarded([](int64_t index) {
          check_memory();
          const driver::MemoryInfo info = allocator_of(index).memory_info();
          return py::make_tuple(info.free_bytes, info.total_bytes);
        }));
  m.def("empty_cache", guarded([](int64_t index, runtime::PoolId pool) {
          if (pool == runtime::PoolId{}) check_memory();  // others are emptied when they end
          translated([&] { allocator_of(index).empty_cache(pool); });
        }),
        py::arg("index"), py::arg("pool") = runtime::PoolId{});
  m.def("reset_peak_memory_stats", guarded([](int64_t index) { allocator_of(index).reset_peak_stats(); }));
  m.def("reset_accumulated_memory_stats",
        guarded([](int64_t index) { allocator_of(index).reset_accumulated_stats(); }));
  m.def("set_memory_fraction", guarded([](int64_t index, double fraction) {
          translated([&] { allocator_of(index).set_memory_fraction(fraction); });
        }));
  m.def("memory_fraction", guarded([](int64_t index) { return allocator_of(index).memory_fraction(); }));
  m.def("raw_alloc", guarded(raw_alloc));
  m.def("raw_delete", guarded(raw_delete));
  m.def("place_of", guarded(place_of));
  m.def("attach_out_of_memory_observer", guarded(attach_out_of_memory_observer));
  m.def("host_memory_stats", guarded(host_memory_stats));
  m.def("reset_peak_host_memory_stats",
        guarded([] { at::getHostAllocator(device_type())->reset_peak_stats(); }));
  m.def("reset_accumulated_host_memory_stats",
        guarded([] { at::getHostAllocator(device_type())->reset_accumulated_stats(); }));
  m.def("open_host_folder", guarded(host_files::open_folder));
  m.def("close_host_folder", host_files::close_folder);
  m.def("remove_host_files", guarded(host_files::remove_names));
  bind_pools(m);
  bind_sources(m);
}

}  // namespace loom::glue
