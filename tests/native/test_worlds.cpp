// Devices of several drivers, and dry runs beside the program: by the runtime's own interface.
#include <unistd.h>

#include <cstring>
#include <fstream>
#include <thread>

#include "check.h"
#include "runtime/commands.h"
#include "runtime/worlds.h"

namespace loom::test {

using runtime::Config;
using runtime::Device;
using runtime::StreamRef;

namespace {

constexpr int64_t kMiB = int64_t{1} << 20;

// The process has one.
runtime::Runtime& program() {
  if (!runtime::is_initialized()) {
    Config config{};
    for (const int physical : {0, 1}) config.devices.push_back({physical, "virtual", 64 * kMiB});
    runtime::initialize(config);
  }
  return *runtime::worlds::program();
}

Config made_of(std::initializer_list<std::pair<const char*, int64_t>> devices) {
  Config config{};
  for (const auto& [driver, memory_bytes] : devices) {
    config.devices.push_back({static_cast<int>(config.devices.size()), driver, memory_bytes});
  }
  return config;
}

// Left at the end of a test, however it ends.
struct DryRun {
  explicit DryRun(const Config& config) {
    program();
    const std::string refusal = runtime::worlds::enter(config);
    CHECK(refusal.empty());
  }
  ~DryRun() { runtime::worlds::leave(); }
};

int64_t address_space_bytes() {
  int64_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages;
  return pages * sysconf(_SC_PAGESIZE);
}

void free_at(void* address) {
  const runtime::Place place = runtime::locate(address);
  CHECK(place.device != nullptr);
  place.device->allocator->deallocate(place.device_address);
}

}  // namespace

TEST(devices_have_their_own_capacity) {
  const DryRun run(made_of({{"null", 64 * kMiB}, {"null", 128 * kMiB}, {"null", 64 * kMiB}}));
  runtime::Runtime& devices = runtime::get();
  CHECK(devices.device_count() == 3 && !devices.has_several_drivers());
  CHECK(devices.device(0).allocator->memory_info().total_bytes == 64 * kMiB);
  CHECK(devices.device(1).allocator->memory_info().total_bytes == 128 * kMiB);
  void* const block = devices.device(1).allocator->allocate(100 * kMiB, 0);
  CHECK(devices.device_of(block) == 1);
  CHECK(throws<OutOfMemory>([&] { devices.device(2).allocator->allocate(100 * kMiB, 0); }));
  free_at(block);
}

TEST(addresses_tell_worlds_apart) {
  Device& own = program().device(0);
  void* const mine = own.allocator->allocate(1000, 0);
  void* inner = nullptr;
  Device* inner_device = nullptr;
  {
    const DryRun run(made_of({{"null", 64 * kMiB}}));
    CHECK(runtime::get().device_count() == 1);
    inner_device = &runtime::get().device(0);
    inner = inner_device->allocator->allocate(1000, 0);
    CHECK(runtime::locate(inner).device == inner_device);
    CHECK(runtime::locate(mine).device == &own);
    CHECK(runtime::get().device_of(mine) == -1);
  }
  // It outlived the dry run, and is freed where it belongs.
  CHECK(runtime::locate(inner).device == inner_device);
  CHECK(runtime::get().device_of(inner) == -1);
  free_at(inner);
  free_at(mine);
}

TEST(a_dry_run_within_another_is_refused) {
  const DryRun run(made_of({{"null", 64 * kMiB}}));
  CHECK(!runtime::worlds::enter(made_of({{"null", 64 * kMiB}})).empty());
  CHECK(runtime::get().device_count() == 1);
}

TEST(threads_start_on_the_first_device_and_come_back_to_theirs) {
  program();
  runtime::set_current_device(1);
  {
    const DryRun run(made_of({{"null", 64 * kMiB}, {"null", 64 * kMiB}, {"null", 64 * kMiB}}));
    CHECK(runtime::current_device() == 0);
    runtime::set_current_device(2);
    int other = -1;
    std::thread([&] { other = runtime::current_device(); }).join();
    CHECK(other == 0);
  }
  CHECK(runtime::current_device() == 1);
  runtime::set_current_device(0);
}

TEST(streams_of_one_world_are_none_of_another) {
  const int64_t outer = program().device(0).new_stream(0);
  int64_t inner = 0;
  {
    const DryRun run(made_of({{"null", 64 * kMiB}}));
    inner = runtime::get().device(0).new_stream(-1);
    CHECK(runtime::Runtime::priority_of(inner) == -1);
    CHECK(throws<InvalidArgument>([&] { runtime::get().stream(0, outer); }));
    runtime::synchronize_stream({0, inner});
  }
  CHECK(throws<InvalidArgument>([&] { runtime::get().stream(0, inner); }));
}

TEST(events_find_their_driver) {
  program();
  const driver::Event outer = runtime::create_event(0, {});
  runtime::record_event(outer, {0, 0});
  driver::Event inner = nullptr;
  {
    const DryRun run(made_of({{"null", 64 * kMiB}}));
    inner = runtime::create_event(0, {});
    runtime::record_event(inner, {0, 0});
    CHECK(runtime::query_event(outer) && runtime::query_event(inner));
    runtime::wait_event({0, 0}, outer);
    CHECK(throws<InvalidArgument>([&] { runtime::record_event(outer, {0, 0}); }));
    CHECK(throws<InvalidArgument>([&] { runtime::elapsed_ns(outer, inner); }));
  }
  CHECK(runtime::query_event(inner));
  CHECK(runtime::elapsed_ns(inner, inner) == 0);
  runtime::destroy_event(inner);
  runtime::destroy_event(outer);
}

TEST(worlds_that_nothing_belongs_to_give_their_addresses_back) {
  constexpr int64_t kCapacity = int64_t{16} << 30;
  void* survivor = nullptr;
  const int64_t before = address_space_bytes();
  for (int i = 0; i < 20; ++i) {
    const DryRun run(made_of({{"null", kCapacity}}));
    void* const block = runtime::get().device(0).allocator->allocate(size_t{8} << 30, 0);
    if (i == 7) {
      survivor = block;
    } else {
      free_at(block);
    }
  }
  // Each reserves twice its capacity. There are left: the survivor's, the last one, and the one before it.
  CHECK(address_space_bytes() - before < 8 * kCapacity);
  CHECK(runtime::locate(survivor).device != nullptr);
  free_at(survivor);
}

TEST(drivers_exchange_bytes_and_order) {
  const DryRun run(made_of({{"virtual", 64 * kMiB}, {"null", 64 * kMiB}, {"virtual", 32 * kMiB}}));
  runtime::Runtime& devices = runtime::get();
  CHECK(devices.has_several_drivers());
  CHECK(&devices.device(0).driver() == &devices.device(2).driver());
  CHECK(&devices.device(0).driver() != &devices.device(1).driver());
  constexpr size_t kBytes = 4096;
  char* const first = static_cast<char*>(devices.device(0).allocator->allocate(kBytes, 0));
  void* const nowhere = devices.device(1).allocator->allocate(kBytes, 0);
  char* const last = static_cast<char*>(devices.device(2).allocator->allocate(kBytes, 0));
  std::memset(first, 7, kBytes);
  runtime::copy({0, 0}, last, first, kBytes);
  // The host cannot reach null's memory: both ways are staged, and what comes back is undefined.
  runtime::copy({0, 0}, nowhere, first, kBytes);
  runtime::copy({1, 0}, first, nowhere, kBytes);
  const driver::Event recorded = runtime::create_event(1, {});
  runtime::record_event(recorded, {1, 0});
  runtime::wait_event({0, 0}, recorded);
  CHECK(throws<InvalidArgument>([&] { runtime::record_event(recorded, {0, 0}); }));
  runtime::destroy_event(recorded);
  runtime::synchronize_device(2);
  CHECK(last[kBytes - 1] == 7);
  for (void* const block : {static_cast<void*>(first), nowhere, static_cast<void*>(last)}) free_at(block);
}

}  // namespace loom::test
