#include "runtime/device.h"

#include <algorithm>

#include "runtime/ipc/activity_board.h"
#include "runtime/runtime.h"

namespace loom::runtime {

namespace {

// What a device's allocator sees of its streams.
class DeviceStreams final : public StreamSource {
 public:
  explicit DeviceStreams(const Device& device) : device_(device) {}
  driver::Stream stream(int64_t key) const override {
    const int64_t other = key >> kForeignShift;
    return other == 0 ? device_.stream(key)
                      : device_.runtime().stream(static_cast<int>(other) - 1,
                                                 key & ((int64_t{1} << kForeignShift) - 1));
  }
  std::vector<driver::Stream> all() const override { return device_.streams(); }

 private:
  const Device& device_;
};

}  // namespace

Device::Device(Runtime& runtime, const DeviceConfig& config, int logical_index, driver::Driver& driver,
               int index)
    : logical(logical_index),
      physical(config.physical),
      driver_index(index),
      runtime_(runtime),
      config_(config),
      driver_(driver),
      runs_kernels_(driver.info().executes_kernels),
      first_id_(runtime.world() << kStreamIdBits) {
  streams_[0] = create_stream(0, {});
  if (config.context_bytes > 0) {
    context_ = driver.allocate(driver_index, static_cast<size_t>(config.context_bytes), {.is_used = false});
  }
  allocator = std::make_unique<CachingAllocator>(driver, driver_index, logical,
                                                 std::make_unique<DeviceStreams>(*this));
}

Device::~Device() {
  allocator.reset();
  if (context_ != nullptr) driver_.deallocate(context_);
  for (const std::atomic<driver::Stream>& place : streams_) driver_.destroy_stream(place.load());
  driver_.destroy_stream(side_stream_.load());
}

driver::Stream Device::create_stream(int64_t place, driver::StreamOptions options) const {
  // What a dry run's devices do takes no time of the machine's.
  if (runtime_.world() == 0) options.activity = activity_board::slot(logical, place);
  return driver_.create_stream(driver_index, options);
}

int64_t Device::new_stream(int priority) {
  const int level = std::clamp(-priority, 0, -kHighestPriority);
  const int64_t turn = next_in_pool_[static_cast<size_t>(level)].fetch_add(1) % kStreamsPerPriority;
  const int64_t place = 1 + level * kStreamsPerPriority + turn;
  const int64_t id = first_id_ + place;
  std::atomic<driver::Stream>& stream = streams_[static_cast<size_t>(place)];
  std::unique_lock<std::mutex> lock(streams_mutex_);
  if (stream.load(std::memory_order_acquire) != nullptr) return id;
  stream.store(create_stream(place, {.priority = -level, .inline_when_idle = false}),
               std::memory_order_release);
  lock.unlock();
  if (tape::is_told(CommandKind::kCreateStream)) [[unlikely]] {
    tape::note(describe(CommandKind::kCreateStream, logical, id));
  }
  return id;
}

driver::Stream Device::side_stream() {
  const std::lock_guard<std::mutex> lock(streams_mutex_);
  if (side_stream_.load() == nullptr) {
    side_stream_.store(create_stream(activity_board::kOwnStream, {.inline_when_idle = false}));
  }
  return side_stream_.load();
}

int64_t Device::find_stream(const void* handle) const noexcept {
  if (handle == nullptr) return -1;
  for (size_t place = 0; place < streams_.size(); ++place) {
    if (streams_[place].load(std::memory_order_acquire) != handle) continue;
    return place == 0 ? 0 : first_id_ + static_cast<int64_t>(place);
  }
  return -1;
}

std::vector<driver::Stream> Device::streams() const {
  std::vector<driver::Stream> all;
  for (const std::atomic<driver::Stream>& place : streams_) {
    if (const driver::Stream stream = place.load(std::memory_order_acquire)) all.push_back(stream);
  }
  return all;
}

void Device::synchronize() const {
  const std::vector<driver::Stream> all = streams();
  // All have finished before the first failure is raised; those of other streams stay kept.
  for (const driver::Stream stream : all) driver_.synchronize_stream(stream, driver::OnFailure::kKeep);
  for (const driver::Stream stream : all) driver_.synchronize_stream(stream);
}

void Device::throw_no_stream(int64_t id) const {
  std::string reason = "device " + std::to_string(logical) + " has no stream with id " + std::to_string(id);
  if (id >> kStreamIdBits != runtime_.world()) {
    reason +=
        ": the stream belongs to other devices, and a stream made outside of a dry run cannot be used in "
        "it, nor one made in it after it has ended";
  }
  throw InvalidArgument(reason);
}

}  // namespace loom::runtime
