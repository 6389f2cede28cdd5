#include "runtime/runtime.h"

#include <pthread.h>

#include <algorithm>

#include "runtime/ipc/activity_board.h"

namespace loom::runtime {

namespace detail {
std::atomic<Runtime*> instance{nullptr};
std::atomic<bool> bad_fork{false};
}  // namespace detail

namespace {

std::mutex init_mutex;
std::function<void()> initializer;

thread_local int tls_device = 0;
thread_local std::vector<int64_t> tls_streams;

driver::Launch launch_of(const std::string& name) {
  if (name == "auto") return driver::Launch::kAuto;
  if (name == "blocking") return driver::Launch::kBlocking;
  if (name == "chaos") return driver::Launch::kChaos;
  throw InvalidArgument("launch must be auto, blocking or chaos, got '" + name + "'");
}

void after_fork_in_child() { detail::bad_fork.store(true); }

// What a device's allocator sees of its streams.
class DeviceStreams final : public StreamSource {
 public:
  DeviceStreams(const Runtime& runtime, int device) : runtime_(runtime), device_(device) {}
  driver::Stream stream(int64_t key) const override {
    const int64_t other = key >> kForeignShift;
    return other == 0
               ? runtime_.stream(device_, key)
               : runtime_.stream(static_cast<int>(other) - 1, key & ((int64_t{1} << kForeignShift) - 1));
  }
  std::vector<driver::Stream> all() const override { return runtime_.streams(device_); }

 private:
  const Runtime& runtime_;
  const int device_;
};

}  // namespace

Runtime::Runtime(const Config& config) : config_(config) {
  int physical_count = 0;
  for (const int physical : config.physical_devices) {
    const auto& all = config.physical_devices;
    if (physical < 0 || std::count(all.begin(), all.end(), physical) != 1) {
      throw InvalidArgument("physical devices must be 0 or more, each named once, got " +
                            std::to_string(physical));
    }
    physical_count = std::max(physical_count, physical + 1);
  }
  driver_ = driver::create_driver(
      config.driver,
      {physical_count, config.memory_bytes, launch_of(config.launch), config.chaos_seed, config.protect});
  runs_kernels_ = driver_->info().executes_kernels;
  is_fenced_ = !driver_->info().host_addressable;
  logical_of_physical_.assign(static_cast<size_t>(physical_count), -1);
  for (const int physical : config.physical_devices) {
    const int logical = static_cast<int>(devices_.size());
    logical_of_physical_[static_cast<size_t>(physical)] = logical;
    auto device = std::make_unique<Device>();
    device->logical = logical;
    device->physical = physical;
    device->streams[0] = driver_->create_stream(physical, {});
    driver::measure(device->streams[0], activity_board::slot(logical, 0));
    device->allocator = std::make_unique<CachingAllocator>(*driver_, physical, logical,
                                                           std::make_unique<DeviceStreams>(*this, logical));
    devices_.push_back(std::move(device));
  }
}

Device& Runtime::device(int index) const {
  if (index < 0 || index >= device_count()) {
    throw InvalidArgument("invalid device index " + std::to_string(index) + ": " +
                          (devices_.empty() ? "there is no device"
                                            : "the devices are 0 … " + std::to_string(device_count() - 1)));
  }
  return *devices_[static_cast<size_t>(index)];
}

driver::Stream Runtime::stream(int index, int64_t id) const {
  const Device& owner = device(index);
  if (id >= 0 && id < kNumStreamIds) [[likely]] {
    const driver::Stream stream = owner.streams[static_cast<size_t>(id)].load(std::memory_order_acquire);
    if (stream != nullptr) [[likely]] {
      return stream;
    }
  }
  throw InvalidArgument("device " + std::to_string(index) + " has no stream with id " + std::to_string(id));
}

int64_t Runtime::new_stream(int index, int priority) {
  Device& owner = device(index);
  const int level = std::clamp(-priority, 0, -kHighestPriority);
  const int64_t turn = owner.next_in_pool[static_cast<size_t>(level)].fetch_add(1) % kStreamsPerPriority;
  const int64_t id = 1 + level * kStreamsPerPriority + turn;
  std::atomic<driver::Stream>& place = owner.streams[static_cast<size_t>(id)];
  std::unique_lock<std::mutex> lock(streams_mutex_);
  if (place.load(std::memory_order_acquire) != nullptr) return id;
  const driver::Stream stream = driver_->create_stream(owner.physical, {-level, /*inline_when_idle=*/false});
  driver::measure(stream, activity_board::slot(index, id));
  place.store(stream, std::memory_order_release);
  lock.unlock();
  if (tape::is_read()) [[unlikely]] {
    Command command{};
    command.kind = CommandKind::kCreateStream;
    command.name = "create_stream";
    command.device = index;
    command.stream = id;
    tape::write(command);
  }
  return id;
}

std::pair<int, int64_t> Runtime::find_stream(const void* handle) const noexcept {
  if (handle == nullptr) return {-1, 0};
  for (const auto& device : devices_) {
    for (size_t id = 0; id < device->streams.size(); ++id) {
      if (device->streams[id].load(std::memory_order_acquire) == handle) {
        return {device->logical, static_cast<int64_t>(id)};
      }
    }
  }
  return {-1, 0};
}

std::vector<driver::Stream> Runtime::streams(int index) const {
  std::vector<driver::Stream> all;
  for (const std::atomic<driver::Stream>& place : device(index).streams) {
    if (const driver::Stream stream = place.load(std::memory_order_acquire)) all.push_back(stream);
  }
  return all;
}

void Runtime::synchronize(int index) const {
  const std::vector<driver::Stream> all = streams(index);
  // All have finished before the first failure is raised; those of other streams stay kept.
  for (const driver::Stream stream : all) driver_->drain_stream(stream);
  for (const driver::Stream stream : all) driver_->synchronize_stream(stream);
}

int Runtime::device_of(const void* address) const noexcept {
  const driver::Address where = driver_->locate(address);
  return where.kind == driver::AddressKind::kDevice ? logical_of_physical_[static_cast<size_t>(where.device)]
                                                    : -1;
}

void set_initializer(std::function<void()> callback) {
  std::lock_guard<std::mutex> lock(init_mutex);
  initializer = std::move(callback);
}

void initialize(const Config& config) {
  std::lock_guard<std::mutex> lock(init_mutex);
  if (is_initialized()) throw InvalidArgument("the devices are initialised already");
  activity_board::start(config.physical_devices);
  // Leaked on purpose: tensors held by other static objects are freed after this file's statics would be.
  auto runtime = std::make_unique<Runtime>(config);
  pthread_atfork(nullptr, nullptr, after_fork_in_child);
  detail::instance.store(runtime.release(), std::memory_order_release);
}

bool is_initialized() noexcept { return detail::instance.load(std::memory_order_acquire) != nullptr; }

Runtime& detail::get_slow() {
  if (bad_fork.load()) {
    throw Unusable(
        "Cannot re-initialize LOOM in forked subprocess. To use LOOM with multiprocessing, you must use the "
        "'spawn' "
        "start method");
  }
  std::function<void()> callback;
  {
    // Not held during the call: the callback takes Python's lock, which another thread may hold while waiting
    // here.
    std::lock_guard<std::mutex> lock(init_mutex);
    callback = initializer;
  }
  if (!is_initialized() && callback) callback();
  Runtime* runtime = instance.load(std::memory_order_acquire);
  if (runtime == nullptr) throw Unusable("the devices are not initialised: import torch_loom first");
  return *runtime;
}

int current_device() noexcept { return tls_device; }

void set_current_device(int index) noexcept { tls_device = index; }

int64_t current_stream(int device) noexcept {
  const auto index = static_cast<size_t>(device);
  return index < tls_streams.size() ? tls_streams[index] : 0;
}

void set_current_stream(int device, int64_t stream) noexcept {
  const auto index = static_cast<size_t>(device);
  if (index >= tls_streams.size()) tls_streams.resize(index + 1, 0);
  tls_streams[index] = stream;
}

}  // namespace loom::runtime
