#include "driver/host/host_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver/host/host_stream.h"
#include "driver/host/worker_stream.h"

namespace loom::driver {

namespace {

void check_not_null(const void* handle, const char* method, const char* what) {
  if (handle == nullptr) throw InvalidArgument(std::string(method) + ": " + what + " must not be null");
}

std::string hex(uintptr_t address) {
  char text[32];
  std::snprintf(text, sizeof text, "%#zx", static_cast<size_t>(address));
  return text;
}

template <typename F>
void submit_callable(StreamState& stream, const char* name, bool in_place, const F& callable) {
  const auto run = [](void* context) { (*static_cast<const F*>(context))(); };
  if (in_place) {
    stream.submit({name, run, nullptr, const_cast<F*>(&callable), true});
  } else {
    const auto release = [](void* context) { delete static_cast<const F*>(context); };
    stream.submit({name, run, release, new F(callable)});
  }
}

}  // namespace

HostDriver::HostDriver(Info info, const DriverConfig& config)
    : info_(std::move(info)),
      launch_(config.launch),
      protect_(config.protect && info_.executes_kernels),
      process_(getpid()),
      chaos_(launch_ == Launch::kChaos ? std::make_unique<Chaos>(config.chaos_seed) : nullptr) {
  const HostAccess access = protect_                 ? HostAccess::kFenced
                            : info_.host_addressable ? HostAccess::kFree
                                                     : HostAccess::kNone;
  for (int device = 0; device < config.device_count; ++device) {
    spaces_.push_back(std::make_unique<AddressSpace>(device, config.memory_bytes, access));
  }
}

HostDriver::~HostDriver() {
  // In a forked child there are no workers to wait for: what refers to them is left alone.
  if (process_ == getpid()) {
    while (!streams_.empty()) destroy_stream(*streams_.begin());
  }
  for (const auto& [address, range] : host_ranges_) {
    if (range.is_own) std::free(reinterpret_cast<void*>(address));
  }
}

AddressSpace& HostDriver::space(int device) const {
  if (device < 0 || device >= device_count()) {
    if (spaces_.empty())
      throw InvalidArgument("there is no device " + std::to_string(device) + ": the driver has none");
    throw InvalidArgument("device must be in 0 … " + std::to_string(device_count() - 1) + ", got " +
                          std::to_string(device));
  }
  return *spaces_[static_cast<size_t>(device)];
}

Properties HostDriver::properties(int device) const {
  return {"loom " + info_.name + " device", space(device).info().total_bytes, 1, 0, 1, 1000};
}

Telemetry HostDriver::telemetry(int device) const {
  const MemoryInfo memory = space(device).info();
  const auto used = static_cast<double>(memory.total_bytes - memory.free_bytes);
  const auto total = static_cast<double>(std::max(memory.total_bytes, int64_t{1}));
  return {0.0, 100.0 * used / total, 0.0, 0.0, 1000};
}

bool HostDriver::can_access_peer(int device, int peer) const {
  space(device);
  space(peer);
  return device != peer;
}

void* HostDriver::allocate(int device, size_t bytes) { return space(device).allocate(bytes); }

void HostDriver::deallocate(int device, void* address) { space(device).deallocate(address); }

MemoryInfo HostDriver::memory_info(int device) const { return space(device).info(); }

SharedMemory HostDriver::share(int device, const void* address) { return space(device).share(address); }

void* HostDriver::map_shared(int device, int file) { return space(device).map_shared(file); }

Address HostDriver::locate(const void* address) const noexcept {
  for (size_t device = 0; device < spaces_.size(); ++device) {
    if (const void* known = spaces_[device]->device_address(address)) {
      return {AddressKind::kDevice, static_cast<int>(device), known};
    }
  }
  if (num_host_ranges_.load(std::memory_order_acquire) != 0) {
    const auto value = reinterpret_cast<uintptr_t>(address);
    std::lock_guard<std::mutex> lock(host_mutex_);
    auto after = host_ranges_.upper_bound(value);
    if (after != host_ranges_.begin()) {
      const auto& [start, range] = *std::prev(after);
      if (value < start + range.bytes) {
        return {range.device < 0 ? AddressKind::kPinnedHost : AddressKind::kDevice, range.device, address};
      }
    }
  }
  return {AddressKind::kUnknown, -1, address};
}

void* HostDriver::engine_address(const void* device_address) const noexcept {
  if (protect_) {
    for (const auto& space : spaces_) {
      if (void* address = space->engine_address(device_address)) return address;
    }
  }
  return const_cast<void*>(device_address);
}

void* HostDriver::allocate_host(size_t bytes) {
  if (bytes == 0) throw InvalidArgument("allocate_host: bytes must be at least 1, got 0");
  void* address = nullptr;
  if (bytes > static_cast<size_t>(INT64_MAX) || posix_memalign(&address, 64, bytes) != 0) {
    const int64_t page_bytes = sysconf(_SC_PAGESIZE);
    throw OutOfMemory(
        "the host is out of memory: asked for " + std::to_string(bytes) + " bytes of pinned memory", -1,
        static_cast<int64_t>(std::min(bytes, size_t{INT64_MAX})), page_bytes * sysconf(_SC_AVPHYS_PAGES),
        page_bytes * sysconf(_SC_PHYS_PAGES));
  }
  std::lock_guard<std::mutex> lock(host_mutex_);
  host_ranges_.emplace(reinterpret_cast<uintptr_t>(address), HostRange{bytes, -1, /*is_own=*/true});
  num_host_ranges_.fetch_add(1, std::memory_order_release);
  return address;
}

void HostDriver::deallocate_host(void* address) {
  if (address == nullptr) return;
  {
    std::lock_guard<std::mutex> lock(host_mutex_);
    const auto found = host_ranges_.find(reinterpret_cast<uintptr_t>(address));
    if (found == host_ranges_.end() || !found->second.is_own) {
      throw InvalidArgument("deallocate_host: the address was not returned by allocate_host()");
    }
    host_ranges_.erase(found);
    num_host_ranges_.fetch_sub(1, std::memory_order_release);
  }
  std::free(address);
}

void HostDriver::check_can_register(uintptr_t begin, size_t bytes) const {
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument("register_memory: the " + std::to_string(bytes) + " bytes at " + hex(begin) + " " +
                          reason);
  };
  if (begin == 0 || bytes == 0 || bytes > UINTPTR_MAX - begin) refuse("are no range of memory");
  const uintptr_t last = begin + bytes - 1;
  for (const auto& space : spaces_) {
    for (const uintptr_t end : {begin, last}) {
      if (space->device_address(reinterpret_cast<const void*>(end)) != nullptr) refuse("are device memory");
    }
  }
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const uintptr_t end : {begin, last}) {
    unsigned char is_resident = 0;
    if (mincore(reinterpret_cast<void*>(end / page * page), 1, &is_resident) != 0) {
      refuse("are not memory of this process");
    }
  }
  auto next = host_ranges_.upper_bound(last);
  if (next == host_ranges_.begin()) return;
  const auto& [start, range] = *std::prev(next);
  if (start + range.bytes > begin) {
    refuse("overlap the " + std::to_string(range.bytes) + " bytes at " + hex(start) + ", which are " +
           (range.device < 0 ? "pinned already" : "memory of device " + std::to_string(range.device)));
  }
}

void HostDriver::register_memory(int device, void* address, size_t bytes) {
  if (device != -1) space(device);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(host_mutex_);
  check_can_register(begin, bytes);
  host_ranges_.emplace(begin, HostRange{bytes, device, /*is_own=*/false});
  num_host_ranges_.fetch_add(1, std::memory_order_release);
}

void HostDriver::unregister_memory(void* address) {
  if (address == nullptr) return;
  const auto begin = reinterpret_cast<uintptr_t>(address);
  std::lock_guard<std::mutex> lock(host_mutex_);
  const auto found = host_ranges_.find(begin);
  if (found == host_ranges_.end() || found->second.is_own) {
    throw InvalidArgument("unregister_memory: no registered range begins at " + hex(begin));
  }
  host_ranges_.erase(found);
  num_host_ranges_.fetch_sub(1, std::memory_order_release);
}

Stream HostDriver::create_stream(int device, StreamOptions options) {
  space(device);
  std::unique_ptr<StreamState> stream(
      chaos_ != nullptr ? chaos_->create_stream()
                        : new WorkerStream(options.inline_when_idle, launch_ == Launch::kBlocking));
  std::lock_guard<std::mutex> lock(streams_mutex_);
  streams_.insert(stream.get());
  return stream.release();
}

void HostDriver::destroy_stream(Stream stream) {
  if (stream == nullptr) return;
  stream->drain();
  {
    std::lock_guard<std::mutex> lock(streams_mutex_);
    streams_.erase(stream);
  }
  delete stream;
}

bool HostDriver::query_stream(Stream stream) {
  check_not_null(stream, "query_stream", "stream");
  if (chaos_ != nullptr) chaos_->ask();
  return stream->idle();
}

void HostDriver::synchronize_stream(Stream stream) {
  check_not_null(stream, "synchronize_stream", "stream");
  stream->drain().raise();
}

void HostDriver::drain_stream(Stream stream) {
  check_not_null(stream, "drain_stream", "stream");
  stream->drain();
}

bool HostDriver::runs_in_place(Stream stream) noexcept {
  return stream != nullptr && (!info_.executes_kernels || stream->runs_in_place());
}

void HostDriver::submit(Stream stream, const Kernel& kernel) {
  if (stream != nullptr && kernel.run != nullptr && info_.executes_kernels) [[likely]] {
    stream->submit(kernel);
    return;
  }
  const OwnedKernel released(kernel);
  check_not_null(stream, "submit", "stream");
  if (kernel.run == nullptr) throw InvalidArgument("submit: the kernel's run must not be null");
}

bool HostDriver::is_pageable(const void* address) const noexcept {
  return locate(address).kind == AddressKind::kUnknown;
}

void HostDriver::copy(Stream stream, void* destination, const void* source, size_t bytes) {
  check_not_null(stream, "copy", "stream");
  if (bytes == 0) return;
  check_not_null(destination, "copy", "destination");
  check_not_null(source, "copy", "source");
  if (!info_.executes_kernels) return;
  // What a kernel copies on its own stream is part of the kernel.
  StreamState* const told = stream->is_mine() ? nullptr : stream;
  const auto move = [told, to = engine_address(destination), from = engine_address(source), bytes] {
    if (told != nullptr) told->mark_copy();
    std::memmove(to, from, bytes);
  };
  // Where it runs here anyway, what kind of memory it is does not matter.
  const bool in_place = stream->runs_in_place() || is_pageable(destination) || is_pageable(source);
  submit_callable(*stream, "copy", in_place, move);
}

void HostDriver::fill(Stream stream, void* destination, uint8_t value, size_t bytes) {
  check_not_null(stream, "fill", "stream");
  if (bytes == 0) return;
  check_not_null(destination, "fill", "destination");
  if (!info_.executes_kernels) return;
  const auto set = [to = engine_address(destination), value, bytes] { std::memset(to, value, bytes); };
  submit_callable(*stream, "fill", stream->runs_in_place(), set);
}

Event HostDriver::create_event(EventOptions options) { return new EventState(options); }

void HostDriver::destroy_event(Event event) { delete event; }

void HostDriver::record_event(Event event, Stream stream) {
  check_not_null(event, "record_event", "event");
  check_not_null(stream, "record_event", "stream");
  event->record(stream->mark());
}

void HostDriver::wait_event(Stream stream, Event event) {
  check_not_null(stream, "wait_event", "stream");
  check_not_null(event, "wait_event", "event");
  if (const Version::Shared version = event->latest()) stream->wait_for(version);
}

bool HostDriver::query_event(Event event) {
  check_not_null(event, "query_event", "event");
  if (chaos_ != nullptr) chaos_->ask();
  const Version::Shared version = event->latest();
  return version == nullptr || version->finished();
}

void HostDriver::synchronize_event(Event event) {
  check_not_null(event, "synchronize_event", "event");
  const Version::Shared version = event->latest();
  if (version == nullptr) return;
  if (chaos_ != nullptr) {
    chaos_->wait(*version);
  } else {
    version->wait();
  }
  version->failures().raise();
}

int64_t HostDriver::elapsed_ns(Event start, Event end) {
  const auto time_of = [](Event event, const char* name) {
    check_not_null(event, "elapsed_ns", name);
    if (!event->options.timing) {
      throw InvalidArgument(std::string("elapsed_ns: the ") + name + " event was created without timing");
    }
    const Version::Shared version = event->latest();
    if (version == nullptr) {
      throw InvalidArgument(std::string("elapsed_ns: the ") + name + " event was never recorded");
    }
    if (!version->finished()) {
      throw NotReady(std::string("elapsed_ns: the ") + name + " event has not finished");
    }
    if (!version->failures().empty()) {
      throw NotReady(std::string("elapsed_ns: the ") + name + " event was recorded behind a failure");
    }
    return version->time_ns();
  };
  const int64_t start_ns = time_of(start, "start");
  return time_of(end, "end") - start_ns;
}

}  // namespace loom::driver
