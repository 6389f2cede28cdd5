// Address spaces, fenced memory, and the registry.
#include <sys/mman.h>
#include <sys/wait.h>
#include <unistd.h>

#include <csignal>
#include <cstring>
#include <fstream>
#include <set>
#include <string>
#include <vector>

#include "check.h"
#include "driver/host/address_space.h"
#include "util/host_memory.h"

namespace loom::test {

using driver::AddressSpace;
using driver::DriverConfig;
using driver::HostAccess;
using driver::Launch;
using driver::Stream;

namespace {

constexpr size_t kGranule = AddressSpace::kGranuleBytes;

// Whether touching the address ends a process with a fault.
template <typename F>
bool faults(F&& touch) {
  const pid_t child = fork();
  if (child == 0) {
    signal(SIGSEGV, SIG_DFL);
    signal(SIGBUS, SIG_DFL);
    touch();
    _exit(0);
  }
  int status = 0;
  waitpid(child, &status, 0);
  return WIFSIGNALED(status) && (WTERMSIG(status) == SIGSEGV || WTERMSIG(status) == SIGBUS);
}

bool host_access_faults(volatile char* address) {
  return faults([=] { address[0] = 1; }) && faults([=] { static_cast<void>(address[0]); });
}

// What this process holds of files in memory: fenced memory is one, a sanitizer's own memory is not.
int64_t resident_shared_bytes() {
  std::ifstream status("/proc/self/status");
  std::string word;
  while (status >> word && word != "RssShmem:") {
  }
  int64_t kib = 0;
  CHECK(status >> kib);
  return kib * 1024;
}

#ifdef __SANITIZE_THREAD__
constexpr int64_t kLargeChipGib = 16;  // the thread sanitizer keeps most addresses to itself
#else
constexpr int64_t kLargeChipGib = 141;
#endif

}  // namespace

namespace {

driver::Address located(const AddressSpace& space, const void* address) {
  driver::Address where{};
  return space.locate(address, &where) ? where : driver::Address{};
}

char* engine_address(const driver::Driver& chip, const void* address) {
  return static_cast<char*>(chip.locate(address).engine_address);
}

}  // namespace

TEST(spaces_hand_out_what_they_have) {
  for (const HostAccess access : {HostAccess::kFree, HostAccess::kNone, HostAccess::kFenced}) {
    AddressSpace space(0, 8 * kGranule, access);
    std::set<void*> blocks;
    for (int i = 0; i < 8; ++i) blocks.insert(space.allocate(kGranule));
    CHECK(blocks.size() == 8 && space.info().free_bytes == 0);
    CHECK(throws<OutOfMemory>([&] { space.allocate(1); }));
    for (void* const block : blocks) space.deallocate(block);
    CHECK(throws<InvalidArgument>([&] { space.deallocate(*blocks.begin()); }));
    void* const whole = space.allocate(8 * kGranule);
    CHECK(located(space, whole).device_address == whole && located(space, whole).device == 0);
    CHECK(located(space, &space).kind == driver::AddressKind::kUnknown);
    space.deallocate(whole);
  }
}

TEST(fenced_spaces_grow_when_holes_leave_no_room) {
  AddressSpace space(0, 64 * kGranule, HostAccess::kFenced);
  // Robson's adversary until a second range is needed; each range is a file of its own.
  std::vector<void*> live;
  for (size_t size = kGranule; size <= 32 * kGranule; size *= 2) {
    while (static_cast<size_t>(space.info().free_bytes) >= size) {
      live.push_back(space.allocate(size));
      auto* const engine = static_cast<char*>(located(space, live.back()).engine_address);
      engine[0] = 'x';
      CHECK(engine != live.back() && located(space, engine).device_address == live.back());
      CHECK(located(space, engine + size - 1).device_address == static_cast<char*>(live.back()) + size - 1);
    }
    for (size_t i = 0; i < live.size(); i += 2) space.deallocate(std::exchange(live[i], nullptr));
    std::erase(live, nullptr);
  }
  for (void* const block : live) {
    CHECK(static_cast<char*>(located(space, block).engine_address)[0] == 'x');
    space.deallocate(block);
  }
}

TEST(fenced_memory_faults_for_the_host_and_not_for_the_engine) {
  Chip chip(Launch::kAuto, 0, /*protect=*/true);
  auto* const device = static_cast<char*>(chip->allocate(0, 3 * kGranule));
  auto* const peer = static_cast<char*>(chip->allocate(1, kGranule));
  CHECK(host_access_faults(device) && host_access_faults(device + 3 * kGranule - 1));
  CHECK(host_access_faults(peer));
  auto* const engine = engine_address(*chip, device);
  std::memset(engine, 'e', 3 * kGranule);
  const Stream stream = chip.inline_stream();
  char host[4] = {};
  chip->copy(stream, peer, device + kGranule, 4);
  chip->fill(stream, peer + 1, 'f', 2);
  chip->copy(stream, host, peer, 4);
  CHECK(std::string(host, 4) == "effe");
  CHECK(chip->locate(engine + 7).device_address == device + 7);
  CHECK(engine_address(*chip, host) == host);
}

TEST(a_forked_child_has_no_part_in_fenced_memory) {
  Chip chip(Launch::kAuto, 0, /*protect=*/true);
  auto* const engine = engine_address(*chip, chip->allocate(0, kGranule));
  engine[0] = 'p';
  CHECK(faults([=] { *static_cast<volatile char*>(engine) = 'c'; }));
  CHECK(engine[0] == 'p');
}

TEST(fenced_memory_that_is_given_back_costs_nothing) {
  Chip chip(Launch::kAuto, 0, /*protect=*/true);
  const int64_t before = resident_shared_bytes();
  for (int i = 0; i < 10; ++i) {
    void* const device = chip->allocate(0, 32 << 20);
    auto* const engine = engine_address(*chip, device);
    CHECK(engine[0] == 0 && engine[(32 << 20) - 1] == 0);
    std::memset(engine, 'x', 32 << 20);
    chip->deallocate(device);
  }
  CHECK(resident_shared_bytes() - before < (16 << 20));
}

TEST(sixteen_large_chips_are_reserved_and_cost_nothing) {
  for (const bool protect : {false, true}) {
    const auto chip = driver::create_driver("virtual", {16, kLargeChipGib << 30, Launch::kAuto, 0, protect});
    for (int device = 0; device < 16; ++device) {
      void* const all = chip->allocate(device, size_t{kLargeChipGib} << 30);
      engine_address(*chip, all)[(size_t{kLargeChipGib} << 30) - 1] = 1;
      chip->deallocate(all);
    }
  }
}

TEST(touching_ahead_makes_the_pages_of_a_range_alone) {
  const auto kPage = static_cast<size_t>(sysconf(_SC_PAGESIZE));
  for (const size_t pages : {8, 300, 2048}) {  // few are left alone; 2048 by several threads
    const size_t bytes = pages * kPage;
    void* const memory = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    CHECK(memory != MAP_FAILED);
    auto* const at = static_cast<char*>(memory);
    at[3 * kPage] = 7;
    const bool is_large = bytes - 4 * kPage >= host_memory::kLargeBytes;
    const bool is_known = madvise(at + (pages - 2) * kPage, kPage, MADV_POPULATE_WRITE) == 0;
    host_memory::touch(at + kPage + 1, bytes - 4 * kPage);
    host_memory::touch(at + (pages - 1) * kPage, 1);  // no whole page
    std::vector<unsigned char> is_there(pages);
    CHECK(mincore(memory, bytes, is_there.data()) == 0);
    for (const size_t page : {size_t{0}, size_t{1}, pages - 3, pages - 1}) CHECK((is_there[page] & 1) == 0);
    for (size_t page = 4; page < pages - 3; ++page) CHECK((is_there[page] & 1) == (is_known && is_large));
    CHECK(at[3 * kPage] == 7 && at[2 * kPage] == 0);
    munmap(memory, bytes);
  }
}

TEST(drivers_by_name) {
  for (const std::string& name : driver::driver_names()) {
    CHECK(driver::create_driver(name, {1, 1 << 30})->info().name == name);
  }
  CHECK(throws<InvalidArgument>([] { driver::create_driver("cuda", {1, 1 << 30}); }));
  CHECK(throws<InvalidArgument>([] { driver::create_driver("virtual", {-1, 1 << 30}); }));
  CHECK(throws<InvalidArgument>([] { driver::create_driver("virtual", {1, -1}); }));
}

TEST(the_null_driver_runs_nothing_and_starts_nothing) {
  const auto null = driver::create_driver("null", {1, 1 << 30});
  const Stream stream = null->create_stream(0, {0, /*inline_when_idle=*/false});
  bool ran = false;
  int num_released = 0;
  struct Context {
    bool& ran;
    int& num_released;
  } context{ran, num_released};
  for (const bool in_place : {false, true}) {
    null->submit(stream, {"null", [](void* c, Stream) { static_cast<Context*>(c)->ran = true; },
                          [](void* c) { ++static_cast<Context*>(c)->num_released; }, &context, in_place});
  }
  CHECK(!ran && num_released == 2 && null->runs_in_place(stream) && null->query_stream(stream));
  null->synchronize_stream(stream);
}

TEST(a_forked_child_waits_for_no_worker) {
  auto* const chip = new Chip;
  const Stream stream = chip->side_stream();
  Gate gate;
  chip->submit(stream, [&] { gate.wait(); });
  const pid_t child = fork();
  if (child == 0) {
    alarm(10);
    delete chip;
    _exit(0);
  }
  int status = -1;
  waitpid(child, &status, 0);
  CHECK(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  gate.open();
  delete chip;
}

}  // namespace loom::test
