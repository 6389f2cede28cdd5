// torch_loom._C_testing.allocator: the caching allocator over a driver of its own, without devices or
// tensors. Tests and benchmarks use it; addresses are ints, and what lies there is not touched.
#include <ATen/ops/empty.h>
#include <pybind11/functional.h>
#include <pybind11/stl.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "driver/registry.h"
#include "runtime/memory/caching_allocator.h"
#include "testing/bindings.h"

namespace py = pybind11;

namespace loom::testing {

namespace {

using runtime::PoolId;

class Streams final : public runtime::StreamSource {
 public:
  explicit Streams(std::vector<driver::Stream> streams) : streams_(std::move(streams)) {}
  driver::Stream stream(int64_t id) const override {
    if (id < 0 || static_cast<size_t>(id) >= streams_.size()) {
      throw InvalidArgument("there is no stream " + std::to_string(id));
    }
    return streams_[static_cast<size_t>(id)];
  }
  std::vector<driver::Stream> all() const override { return streams_; }

 private:
  const std::vector<driver::Stream> streams_;
};

class Bench {
 public:
  Bench(const std::string& driver, int64_t memory_bytes, int num_streams)
      : driver_(driver::create_driver(driver, {1, memory_bytes})) {
    for (int i = 0; i < num_streams; ++i) streams_.push_back(driver_->create_stream(0, {0, i == 0}));
    allocator_ =
        std::make_unique<runtime::CachingAllocator>(*driver_, 0, 0, std::make_unique<Streams>(streams_));
  }
  ~Bench() {
    py::gil_scoped_release no_gil;
    allocator_.reset();
    for (const driver::Stream stream : streams_) driver_->destroy_stream(stream);
  }
  Bench(const Bench&) = delete;
  Bench& operator=(const Bench&) = delete;

  runtime::CachingAllocator& allocator() { return *allocator_; }

  void configure(size_t max_split_mb, const std::vector<size_t>& divisions, double threshold,
                 bool expandable) {
    runtime::AllocatorConfig config;
    if (max_split_mb != 0) config.max_split_bytes = max_split_mb * runtime::kMiB;
    std::copy_n(divisions.begin(), std::min(divisions.size(), config.roundup_power2_divisions.size()),
                config.roundup_power2_divisions.begin());
    config.garbage_collection_threshold = threshold;
    config.expandable_segments = expandable;
    allocator_->configure(config);
  }

  // Runs a Python function as a kernel of a stream.
  void submit(int64_t stream, py::object run) {
    struct Work {
      py::object run;
    };
    const auto call = [](void* context, driver::Stream) {
      py::gil_scoped_acquire gil;
      static_cast<Work*>(context)->run();
    };
    const auto release = [](void* context) {
      py::gil_scoped_acquire gil;
      delete static_cast<Work*>(context);
    };
    auto* work = new Work{std::move(run)};
    py::gil_scoped_release no_gil;
    driver_->submit(streams_.at(static_cast<size_t>(stream)), {"python", call, release, work});
  }

 private:
  const std::unique_ptr<driver::Driver> driver_;
  std::vector<driver::Stream> streams_;
  std::unique_ptr<runtime::CachingAllocator> allocator_;
};

py::list segments(Bench& bench) {
  py::list out;
  for (const runtime::SegmentInfo& segment : bench.allocator().snapshot({}, false).segments) {
    py::list blocks;
    for (const runtime::BlockInfo& block : segment.blocks) {
      blocks.append(
          py::make_tuple(block.address, block.size, block.requested, block.allocated, block.active));
    }
    py::dict entry;
    entry["address"] = segment.address;
    entry["total_size"] = segment.total;
    entry["stream"] = segment.stream;
    entry["pool_id"] = segment.pool;
    entry["is_large"] = segment.is_large;
    entry["is_expandable"] = segment.is_expandable;
    entry["blocks"] = blocks;
    out.append(entry);
  }
  return out;
}

// Nanoseconds a pair of allocation and free, on `num_threads` threads at once: the mean of each thread.
template <typename Pair>
std::vector<double> time_pairs(int num_threads, int64_t num_pairs, Pair&& pair) {
  std::vector<double> means(static_cast<size_t>(num_threads));
  std::vector<std::thread> threads;
  std::atomic<int> waiting{num_threads};
  for (int index = 0; index < num_threads; ++index) {
    threads.emplace_back([&, index] {
      for (int64_t i = 0; i < num_pairs / 10; ++i) pair(index);
      --waiting;
      while (waiting.load() > 0) std::this_thread::yield();
      const auto began = std::chrono::steady_clock::now();
      for (int64_t i = 0; i < num_pairs; ++i) pair(index);
      const std::chrono::duration<double, std::nano> took = std::chrono::steady_clock::now() - began;
      means[static_cast<size_t>(index)] = took.count() / static_cast<double>(num_pairs);
    });
  }
  for (std::thread& thread : threads) thread.join();
  return means;
}

std::vector<double> time_allocator(size_t bytes, int num_threads, int64_t num_pairs) {
  Bench bench("null", int64_t{1} << 34, 1);
  return unlocked([&] {
    return time_pairs(num_threads, num_pairs,
                      [&](int) { bench.allocator().deallocate(bench.allocator().allocate(bytes, 0)); });
  });
}

std::vector<double> time_malloc(size_t bytes, int num_threads, int64_t num_pairs) {
  return unlocked([&] {
    return time_pairs(num_threads, num_pairs, [&](int) {
      void* memory = std::malloc(bytes);
      asm volatile("" : : "r"(memory) : "memory");  // the compiler must not drop the pair
      std::free(memory);
    });
  });
}

std::vector<double> time_empty(const std::string& device, int64_t bytes, int num_threads, int64_t num_pairs) {
  const at::TensorOptions options = at::TensorOptions().dtype(at::kByte).device(c10::Device(device));
  at::empty({bytes}, options);  // initialises the device with Python's lock held
  return unlocked(
      [&] { return time_pairs(num_threads, num_pairs, [&](int) { at::empty({bytes}, options); }); });
}

}  // namespace

void bind_allocator(py::module_& parent) {
  py::module_ m = parent.def_submodule("allocator", "The caching allocator alone, for tests and benchmarks.");
  py::class_<Bench>(m, "Allocator")
      .def(py::init<const std::string&, int64_t, int>(), py::arg("driver"), py::arg("memory_bytes"),
           py::arg("num_streams") = 1)
      .def(
          "allocate",
          [](Bench& self, size_t bytes, int64_t stream) {
            return unlocked(
                [&] { return reinterpret_cast<uintptr_t>(self.allocator().allocate(bytes, stream)); });
          },
          py::arg("bytes"), py::arg("stream") = 0)
      .def("deallocate",
           [](Bench& self, uintptr_t address) {
             unlocked([&] { self.allocator().deallocate(reinterpret_cast<void*>(address)); });
           })
      .def("record_stream",
           [](Bench& self, uintptr_t address, int64_t stream) {
             self.allocator().record_stream(reinterpret_cast<void*>(address), stream);
           })
      .def(
          "empty_cache",
          [](Bench& self, PoolId pool) { unlocked([&] { self.allocator().empty_cache(pool); }); },
          py::arg("pool") = PoolId{})
      .def("configure", &Bench::configure, py::arg("max_split_mb") = 0,
           py::arg("roundup_power2_divisions") = std::vector<size_t>{},
           py::arg("garbage_collection_threshold") = 0.0, py::arg("expandable_segments") = false)
      .def("set_memory_fraction",
           [](Bench& self, double fraction) { self.allocator().set_memory_fraction(fraction); })
      .def(
          "use_pool",
          [](Bench& self, PoolId id, bool use_on_oom, bool no_split) {
            self.allocator().use_pool(id, use_on_oom, no_split);
          },
          py::arg("id"), py::arg("use_on_oom") = false, py::arg("no_split") = false)
      .def(
          "begin_allocate_to_pool",
          [](Bench& self, PoolId id, int64_t stream, bool capturing) {
            self.allocator().begin_allocate_to_pool(
                id, [stream](int64_t other) { return other == stream; }, capturing);
          },
          py::arg("id"), py::arg("stream") = 0, py::arg("capturing") = true)
      .def("end_allocate_to_pool", [](Bench& self, PoolId id) { self.allocator().end_allocate_to_pool(id); })
      .def("release_pool", [](Bench& self, PoolId id) { self.allocator().release_pool(id); })
      .def("pool_use_count", [](Bench& self, PoolId id) { return self.allocator().pool_use_count(id); })
      .def("submit", &Bench::submit)
      .def("stats",
           [](Bench& self) {
             py::dict out;
             for (const auto& [name, value] : runtime::named_stats(self.allocator().stats())) {
               out[py::str(name)] = value;
             }
             return out;
           })
      .def("reset_peak_stats", [](Bench& self) { self.allocator().reset_peak_stats(); })
      .def("reset_accumulated_stats", [](Bench& self) { self.allocator().reset_accumulated_stats(); })
      .def("segments", segments);
  m.def("time_allocator", time_allocator, py::arg("bytes"), py::arg("num_threads"), py::arg("num_pairs"));
  m.def("time_malloc", time_malloc, py::arg("bytes"), py::arg("num_threads"), py::arg("num_pairs"));
  m.def("time_empty", time_empty, py::arg("device"), py::arg("bytes"), py::arg("num_threads"),
        py::arg("num_pairs"));
}

}  // namespace loom::testing
