// The caching allocator under threads, streams, events and a device that runs full.
#include <array>
#include <cstdlib>
#include <random>
#include <stdexcept>

#include "check.h"
#include "runtime/memory/caching_allocator.h"
#include "runtime/memory/running_kernels.h"

namespace loom::test {

using driver::Launch;
using driver::Stream;
using runtime::AllocatorConfig;
using runtime::AllocatorStats;
using runtime::CachingAllocator;

namespace {

constexpr int kNumStreams = 4;
constexpr size_t kMiB = size_t{1} << 20;

class Streams final : public runtime::StreamSource {
 public:
  explicit Streams(std::vector<Stream> streams) : streams_(std::move(streams)) {}
  Stream stream(int64_t id) const override {
    if (fails_at == id) throw std::runtime_error("no thread for it");
    return streams_.at(static_cast<size_t>(id));
  }
  std::vector<Stream> all() const override { return streams_; }

  std::atomic<int64_t> fails_at{-1};

 private:
  const std::vector<Stream> streams_;
};

struct Fixture {
  explicit Fixture(Launch launch = Launch::kAuto) : chip(launch, 5) {
    streams.push_back(chip.inline_stream());
    for (int i = 1; i < kNumStreams; ++i) streams.push_back(chip.side_stream());
    auto owned = std::make_unique<Streams>(streams);
    source = owned.get();
    allocator = std::make_unique<CachingAllocator>(*chip, 0, 0, std::move(owned));
  }
  void configure(bool expandable, size_t max_split_bytes = AllocatorConfig::kUnlimited) {
    AllocatorConfig config;
    config.expandable_segments = expandable;
    config.max_split_bytes = max_split_bytes;
    allocator->configure(config);
  }
  Chip chip;
  std::vector<Stream> streams;
  Streams* source = nullptr;
  std::unique_ptr<CachingAllocator> allocator;
};

// Blocks are filled on their stream with a value of their own and read there before they are freed: a block
// that two hold at once has another's value.
void churn(Fixture& fixture, unsigned seed, int num_steps, std::atomic<int>& corrupted) {
  struct Held {
    unsigned char* memory;
    int64_t stream;
    unsigned char value;
  };
  std::mt19937 draw(seed);
  std::vector<Held> held;
  const auto release = [&](size_t index) {
    const Held block = held[index];
    held.erase(held.begin() + static_cast<std::ptrdiff_t>(index));
    const Stream stream = fixture.streams[static_cast<size_t>(block.stream)];
    fixture.chip.submit(stream, [block, &corrupted] {
      if (block.memory[0] != block.value || block.memory[511] != block.value) ++corrupted;
    });
    if (draw() % 3 == 0) {
      const int64_t other = draw() % kNumStreams;
      fixture.allocator->record_stream(block.memory, other);
    }
    fixture.allocator->deallocate(block.memory);
  };
  for (int step = 0; step < num_steps; ++step) {
    if (!held.empty() && (held.size() > 6 || draw() % 2 == 0)) {
      release(draw() % held.size());
    } else {
      const int64_t stream = draw() % kNumStreams;
      const size_t bytes = draw() % 4 == 0 ? 3 * kMiB + draw() % kMiB : 512 + draw() % 100'000;
      try {
        auto* memory = static_cast<unsigned char*>(fixture.allocator->allocate(bytes, stream));
        const auto value = static_cast<unsigned char>(draw());
        fixture.chip.submit(fixture.streams[static_cast<size_t>(stream)],
                            [memory, value] { memory[0] = memory[511] = value; });
        held.push_back({memory, stream, value});
      } catch (const OutOfMemory&) {
        if (!held.empty()) release(0);
      }
    }
    if (draw() % 64 == 0) fixture.allocator->empty_cache();
  }
  while (!held.empty()) release(held.size() - 1);
}

void churn_on_threads(Launch launch, int num_threads, int num_steps, bool expandable = false,
                      size_t max_split_bytes = AllocatorConfig::kUnlimited) {
  Fixture fixture(launch);
  fixture.configure(expandable, max_split_bytes);
  std::atomic<int> corrupted{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < num_threads; ++i) {
    threads.emplace_back([&, i] { churn(fixture, static_cast<unsigned>(i), num_steps, corrupted); });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Stream stream : fixture.streams) fixture.chip->synchronize_stream(stream);
  fixture.allocator->empty_cache();
  CHECK(corrupted == 0);
  const AllocatorStats stats = fixture.allocator->stats();
  CHECK(stats.allocated_bytes[0].current == 0);
  CHECK(stats.active_bytes[0].current == 0);
  CHECK(stats.reserved_bytes[0].current == 0);
  CHECK(stats.inactive_split[0].current == 0);
  CHECK(stats.requested_bytes[0].current == 0);
  CHECK(fixture.chip->memory_info(0).free_bytes == Chip::kBytes);
}

}  // namespace

TEST(allocator_threads_and_streams) { churn_on_threads(Launch::kAuto, 4, 600); }
TEST(allocator_threads_in_place) { churn_on_threads(Launch::kBlocking, 4, 600); }
TEST(allocator_chaos) { churn_on_threads(Launch::kChaos, 2, 300); }
TEST(allocator_threads_and_expandable_segments) { churn_on_threads(Launch::kAuto, 4, 600, true); }
TEST(allocator_threads_and_a_split_limit) { churn_on_threads(Launch::kAuto, 4, 600, true, 20 * kMiB); }

namespace {

// For its life, memory is taken and given back with each allocation, from the driver or from malloc().
class Uncached {
 public:
  explicit Uncached(bool has_source) {
    runtime::memory_mode::set_caching(false);
    if (!has_source) return;
    runtime::memory_mode::set_source(std::make_shared<runtime::MemorySource>(
        [](std::ptrdiff_t bytes, int, void*) {
          ++num_taken;
          return std::malloc(static_cast<size_t>(bytes));
        },
        [](void* address, std::ptrdiff_t, int, void*) {
          --num_taken;
          std::free(address);
        }));
  }
  ~Uncached() {
    runtime::memory_mode::set_caching(true);
    runtime::memory_mode::set_source(nullptr);
  }
  Uncached(const Uncached&) = delete;
  Uncached& operator=(const Uncached&) = delete;

  static inline std::atomic<int> num_taken{0};
};

void churn_uncached(Launch launch, int num_threads, int num_steps, bool has_source) {
  const Uncached uncached(has_source);
  churn_on_threads(launch, num_threads, num_steps);
  CHECK(Uncached::num_taken == 0);
}

}  // namespace

TEST(allocator_uncached) { churn_uncached(Launch::kAuto, 4, 300, false); }
TEST(allocator_uncached_in_chaos) { churn_uncached(Launch::kChaos, 2, 150, false); }
TEST(allocator_from_a_source) { churn_uncached(Launch::kAuto, 4, 300, true); }
TEST(allocator_from_a_source_in_chaos) { churn_uncached(Launch::kChaos, 2, 150, true); }

// Its own segments serve a pool, whole and cut, from its source.
TEST(pool_from_a_source) {
  Fixture fixture;
  CachingAllocator& allocator = *fixture.allocator;
  std::shared_ptr<const runtime::MemorySource> source;
  {
    const Uncached uncached(true);
    source = runtime::memory_mode::source();
  }
  const runtime::PoolId id{0, 1};
  allocator.use_pool(id, false, false, source);
  std::vector<std::thread> threads;
  allocator.begin_allocate_to_pool(id, [](int64_t) { return true; }, false);
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&allocator, i] {
      for (size_t step = 0; step < 100; ++step) {
        auto* memory = static_cast<char*>(allocator.allocate(512 * (1 + step * 37 % 5000), i % 2));
        memory[0] = memory[511] = 1;
        allocator.deallocate(memory);
        if (step % 10 == 0) allocator.empty_cache();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(Uncached::num_taken > 0);
  CHECK(fixture.chip->memory_info(0).free_bytes == Chip::kBytes);
  allocator.end_allocate_to_pool(id);
  allocator.release_pool(id);
  allocator.release_pool(id);
  allocator.empty_cache();
  CHECK(Uncached::num_taken == 0);
  CHECK(allocator.stats().reserved_bytes[0].current == 0);
}

TEST(allocator_chaos_and_expandable_segments) { churn_on_threads(Launch::kChaos, 2, 300, true); }

// It runs before what the other thread has submitted, which still uses the memory.
TEST(allocator_frees_of_others_are_not_for_a_kernel_that_runs) {
  Fixture fixture;
  CachingAllocator& allocator = *fixture.allocator;
  Gate gate;
  void* used = nullptr;
  {
    const runtime::RunsKernels running(&allocator, 1);
    std::thread([&] {
      used = allocator.allocate(kMiB, 1);
      fixture.chip.submit(fixture.streams[1], [&] { gate.wait(); });
      allocator.deallocate(used);
    }).join();
    void* const own = allocator.allocate(kMiB, 1);
    CHECK(own != used);
    allocator.deallocate(own);
    CHECK(allocator.allocate(kMiB, 1) == own);
    allocator.deallocate(own);
  }
  gate.open();
  fixture.chip->synchronize_stream(fixture.streams[1]);
  std::thread([&] {
    void* const first = allocator.allocate(kMiB, 1);
    CHECK(first == used);
    allocator.deallocate(first);
  }).join();
}

// A kernel within a kernel hides neither.
TEST(allocator_frees_of_others_within_nested_kernels) {
  Fixture fixture;
  CachingAllocator& allocator = *fixture.allocator;
  Gate gate;
  void *first = nullptr, *second = nullptr;
  {
    const runtime::RunsKernels outer(&allocator, 1);
    const runtime::RunsKernels inner(&allocator, 2);
    std::thread([&] {
      first = allocator.allocate(kMiB, 1);
      second = allocator.allocate(kMiB, 2);
      for (const int stream : {1, 2}) fixture.chip.submit(fixture.streams[stream], [&] { gate.wait(); });
      allocator.deallocate(first);
      allocator.deallocate(second);
    }).join();
    CHECK(allocator.allocate(kMiB, 1) != first);
    CHECK(allocator.allocate(kMiB, 2) != second);
  }
  gate.open();
}

// Its end would else be given back together with what was there when the cache was emptied.
TEST(expandable_segment_does_not_grow_while_it_is_given_back) {
  Fixture fixture;
  fixture.configure(true);
  CachingAllocator& allocator = *fixture.allocator;
  allocator.deallocate(allocator.allocate(20 * kMiB, 0));
  Gate gate;
  fixture.chip.submit(fixture.streams[1], [&] { gate.wait(); });
  std::thread emptying([&] { allocator.empty_cache(); });
  while (allocator.stats().num_sync_all_streams == 0) std::this_thread::yield();
  auto* memory = static_cast<unsigned char*>(allocator.allocate(40 * kMiB, 0));
  gate.open();
  emptying.join();
  CHECK(allocator.stats().reserved_bytes[0].current == 40 * kMiB);
  CHECK(fixture.chip->memory_info(0).free_bytes == Chip::kBytes - 40 * kMiB);
  memory[0] = memory[40 * kMiB - 1] = 1;
  allocator.deallocate(memory);
  allocator.empty_cache();
  CHECK(allocator.stats().reserved_bytes[0].current == 0);
}

// A segment of which the device still uses something is cached again, and grows again.
TEST(expandable_segment_grows_after_it_was_not_given_back) {
  Fixture fixture;
  fixture.configure(true);
  CachingAllocator& allocator = *fixture.allocator;
  void* const memory = allocator.allocate(20 * kMiB, 0);
  allocator.deallocate(memory);
  runtime::set_blocking_call([](void (*)(void*), void*) { throw std::runtime_error("interrupted"); });
  const bool has_thrown = throws<std::runtime_error>([&] { allocator.empty_cache(); });
  runtime::set_blocking_call(nullptr);
  CHECK(has_thrown);
  CHECK(allocator.allocate(40 * kMiB, 0) == memory);
  allocator.deallocate(memory);
  // Nobody waits for a thread that gave up.
  CHECK(throws<OutOfMemory>([&] { allocator.allocate(70 * kMiB, 0); }));
  CHECK(allocator.stats().reserved_bytes[0].current == 0);
}

TEST(expandable_segment_above_the_split_limit_serves_small_requests) {
  Fixture fixture;
  fixture.configure(true, 20 * kMiB);
  CachingAllocator& allocator = *fixture.allocator;
  void* const memory = allocator.allocate(50 * kMiB, 0);
  allocator.deallocate(memory);
  CHECK(allocator.allocate(10 * kMiB, 0) == memory);
  allocator.deallocate(memory);
  allocator.empty_cache();
  CHECK(allocator.stats().reserved_bytes[0].current == 0);
}

// A freed block whose events could not be recorded stays where it is until they are.
TEST(allocator_records_later_what_it_could_not_record) {
  Fixture fixture;
  CachingAllocator& allocator = *fixture.allocator;
  void* const memory = allocator.allocate(20 * kMiB, 0);
  for (int64_t stream = 1; stream < kNumStreams; ++stream) allocator.record_stream(memory, stream);
  fixture.source->fails_at = 2;
  CHECK(throws<std::runtime_error>([&] { allocator.deallocate(memory); }));
  CHECK(allocator.stats().active_bytes[0].current == 20 * kMiB);
  CHECK(throws<std::runtime_error>([&] { allocator.allocate(kMiB, 0); }));
  fixture.source->fails_at = -1;
  allocator.empty_cache();
  const AllocatorStats stats = allocator.stats();
  CHECK(stats.active_bytes[0].current == 0);
  CHECK(stats.reserved_bytes[0].current == 0);
}

// What one thread records while another asks is asked about later: nothing stays in use for ever.
TEST(allocator_forgets_no_events) {
  Fixture fixture;
  CachingAllocator& allocator = *fixture.allocator;
  for (int round = 0; round < 100; ++round) {
    std::vector<std::thread> threads;
    for (int64_t i = 0; i < 4; ++i) {
      threads.emplace_back([&allocator, i] {
        for (int step = 0; step < 10; ++step) {
          void* const memory = allocator.allocate(512, i);
          allocator.record_stream(memory, (i + 1) % kNumStreams);
          allocator.deallocate(memory);
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    allocator.empty_cache();
    CHECK(allocator.stats().active_bytes[0].current == 0);
  }
}

// Kernels that allocate, on streams that wait for each other's memory.
TEST(allocator_kernels_run_out_of_memory) {
  Fixture fixture;
  std::atomic<int> num_failed{0};
  std::vector<std::thread> threads;
  for (int64_t stream = 0; stream < kNumStreams; ++stream) {
    threads.emplace_back([&fixture, &num_failed, stream] {
      for (int i = 0; i < 100; ++i) {
        fixture.chip.submit(fixture.streams[static_cast<size_t>(stream)], [&fixture, &num_failed, stream] {
          try {
            fixture.allocator->deallocate(fixture.allocator->allocate(30 * kMiB, stream));
          } catch (const OutOfMemory&) {
            ++num_failed;
          }
        });
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const Stream stream : fixture.streams) fixture.chip->synchronize_stream(stream);
  fixture.allocator->empty_cache();
  CHECK(fixture.allocator->stats().reserved_bytes[0].current == 0);
  CHECK(fixture.allocator->stats().num_ooms == num_failed);
}

// Nobody is told that memory has run out while another thread is giving back enough of it.
TEST(allocator_flushes_at_once) {
  Fixture fixture;
  std::atomic<int> num_failed{0};
  std::vector<std::thread> threads;
  for (int64_t stream = 0; stream < 2; ++stream) {
    threads.emplace_back([&fixture, &num_failed, stream] {
      for (size_t i = 0; i < 200; ++i) {
        try {
          fixture.allocator->deallocate(fixture.allocator->allocate((12 + 2 * (i % 8)) * kMiB, stream));
        } catch (const OutOfMemory&) {
          ++num_failed;
        }
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  CHECK(num_failed == 0);
}

}  // namespace loom::test
