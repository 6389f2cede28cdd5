#include "runtime/ipc/activity_board.h"

#include <pthread.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>

#include "runtime/clock.h"
#include "runtime/worlds.h"
#include "telemetry/activity_page.h"

namespace loom::runtime {

namespace {

using driver::StreamActivity;

using telemetry::DeviceEntry;
using telemetry::kMaxDevices;
using telemetry::kStreamsOffset;
using Header = telemetry::PageHeader;

constexpr size_t kStreams = kNumStreamIds + 1;
static_assert(activity_board::kOwnStream == kNumStreamIds);

// Never unmapped: streams run until the process ends.
std::atomic<Header*> board{nullptr};
size_t board_bytes = 0;

// Replaces the pages that the parent publishes with private memory.
void leave_to_the_parent() {
  if (Header* header = board.load()) {
    mmap(header, board_bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  }
}

[[noreturn]] void fail(const char* what) { throw Error(std::string(what) + ": " + std::strerror(errno)); }

}  // namespace

void activity_board::start(const std::vector<Listed>& devices) {
  const size_t size = kStreamsOffset + devices.size() * kStreams * sizeof(StreamActivity);
  if (devices.size() > kMaxDevices) return;
  void* memory = mmap(nullptr, size, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (memory == MAP_FAILED) fail("no memory for the activity of the devices");
  auto* header = static_cast<Header*>(memory);
  std::memcpy(header->magic, telemetry::kPageMagic, sizeof header->magic);
  header->version = telemetry::kPageVersion;
  header->process = static_cast<uint32_t>(getpid());
  header->num_devices = static_cast<uint32_t>(devices.size());
  header->num_streams = kStreams;
  header->num_buckets = driver::activity::kNumBuckets;
  header->bucket_shift = static_cast<uint32_t>(driver::activity::bucket_shift(clock::ticks_per_second()));
  auto* const slots = reinterpret_cast<StreamActivity*>(static_cast<char*>(memory) + kStreamsOffset);
  for (size_t i = 0; i < devices.size() * kStreams; ++i) {
    slots[i].prepare(static_cast<int>(header->bucket_shift));
  }
  for (size_t i = 0; i < devices.size(); ++i) {
    DeviceEntry& entry = header->devices[i];
    entry.physical = static_cast<uint32_t>(devices[i].physical);
    devices[i].chip.copy(entry.chip, sizeof(entry.chip) - 1);
  }
  board_bytes = size;
  board.store(header, std::memory_order_release);
  pthread_atfork(nullptr, nullptr, leave_to_the_parent);
}

StreamActivity* activity_board::slot(int device, int64_t stream) noexcept {
  Header* header = board.load(std::memory_order_acquire);
  const auto slot = static_cast<size_t>(stream);
  if (header == nullptr || static_cast<uint32_t>(device) >= header->num_devices || slot >= kStreams)
    return nullptr;
  auto* first = reinterpret_cast<StreamActivity*>(reinterpret_cast<char*>(header) + kStreamsOffset);
  return first + static_cast<size_t>(device) * kStreams + slot;
}

void activity_board::note_memory(const driver::Driver& driver, int device, int driver_index) noexcept {
  Header* header = board.load(std::memory_order_acquire);
  const Runtime* runtime = worlds::program();
  if (header == nullptr || runtime == nullptr || device >= runtime->device_count() ||
      &runtime->device(device).driver() != &driver) {
    return;
  }
  const driver::MemoryInfo memory = driver.memory_info(driver_index);
  DeviceEntry& entry = header->devices[device];
  entry.memory_bytes.store(static_cast<uint64_t>(memory.total_bytes - memory.free_bytes),
                           std::memory_order_relaxed);
  entry.capacity_bytes.store(static_cast<uint64_t>(memory.total_bytes), std::memory_order_relaxed);
}

void activity_board::publish(int file) {
  Header* header = board.load(std::memory_order_acquire);
  if (header == nullptr) throw InvalidArgument("there is no activity to publish: no device was used");
  const std::string contents = snapshot();
  if (pwrite(file, contents.data(), contents.size(), 0) != static_cast<ssize_t>(contents.size()) ||
      mmap(header, board_bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_FIXED, file, 0) == MAP_FAILED) {
    fail("the activity of the devices cannot be published");
  }
}

size_t activity_board::bytes() noexcept {
  return board.load(std::memory_order_acquire) == nullptr ? 0 : board_bytes;
}

std::string activity_board::snapshot() {
  const Header* header = board.load(std::memory_order_acquire);
  std::string copy(bytes(), '\0');
  const auto* words = reinterpret_cast<const std::atomic<uint64_t>*>(header);
  for (size_t i = 0; i < copy.size() / 8; ++i) {
    const uint64_t word = words[i].load(std::memory_order_relaxed);
    std::memcpy(copy.data() + 8 * i, &word, 8);
  }
  return copy;
}

}  // namespace loom::runtime
