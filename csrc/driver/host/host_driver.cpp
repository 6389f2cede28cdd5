#include "driver/host/host_driver.h"

#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <cstdlib>
#include <cstring>

#include "driver/host/host_stream.h"
#include "driver/host/worker_stream.h"
#include "util/host_memory.h"

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

// Throws OutOfMemory where the host has no memory for what a large write would touch first.
void check_room(void* destination, size_t bytes) {
  if (bytes < host_memory::kLargeBytes || host_memory::can_touch(destination, bytes)) return;
  throw OutOfMemory(
      "out of memory. Tried to write " + std::to_string(bytes >> 20) + " MiB, and " + host_memory::describe(),
      -1, static_cast<int64_t>(bytes), 0, 0);
}

template <typename F>
void submit_callable(HostStream& stream, const char* name, bool in_place, const F& callable) {
  const auto run = [](void* context, Stream) { (*static_cast<const F*>(context))(); };
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
      process_(getpid()),
      chaos_(launch_ == Launch::kChaos ? std::make_unique<Chaos>(config.chaos_seed) : nullptr) {
  const HostAccess access = !info_.unified_addresses ? HostAccess::kFenced
                            : info_.host_addressable ? HostAccess::kFree
                                                     : HostAccess::kNone;
  for (int device = 0; device < config.device_count; ++device) {
    spaces_.push_back(std::make_unique<AddressSpace>(device, config.memory_bytes_of(device), access));
  }
}

HostDriver::~HostDriver() {
  // In a forked child there are no workers to wait for: what refers to them is left alone.
  if (process_ == getpid()) {
    while (!streams_.empty()) destroy_stream((*streams_.begin())->handle());
  }
  for (const auto& [address, range] : host_ranges_) {
    if (range.is_own) std::free(reinterpret_cast<void*>(address));
  }
}

AddressSpace& HostDriver::space(int device) const {
  if (device < 0 || device >= info_.device_count) {
    if (spaces_.empty())
      throw InvalidArgument("there is no device " + std::to_string(device) + ": the driver has none");
    throw InvalidArgument("device must be in 0 … " + std::to_string(info_.device_count - 1) + ", got " +
                          std::to_string(device));
  }
  return *spaces_[static_cast<size_t>(device)];
}

void* HostDriver::allocate(int device, size_t bytes, Place place) {
  AddressSpace& own = space(device);
  // What is taken in small pieces is written at once. A large piece may never be: its writes are asked for.
  const size_t soon = place.is_used && bytes <= host_memory::kWrittenSoonBytes ? bytes : 0;
  if (info_.executes_kernels && !host_memory::has_room(soon)) {
    const MemoryInfo memory = memory_info(device);
    throw OutOfMemory("out of memory: " + host_memory::describe(), device, static_cast<int64_t>(bytes),
                      memory.free_bytes, memory.total_bytes);
  }
  return own.allocate(bytes, place);
}

MemoryInfo HostDriver::memory_info(int device) const { return space(device).info(); }

SharedMemory HostDriver::share(int device, const void* address) { return space(device).share(address); }

void* HostDriver::map_shared(int device, const ShareHandle& handle, size_t bytes) {
  return space(device).map_shared(handle, bytes);
}

Address HostDriver::locate(const void* address) const noexcept {
  Address where{};
  for (const auto& space : spaces_) {
    if (space->locate(address, &where)) return where;
  }
  where = {AddressKind::kUnknown, -1, const_cast<void*>(address), const_cast<void*>(address)};
  if (num_host_ranges_.load(std::memory_order_acquire) != 0) {
    const auto value = reinterpret_cast<uintptr_t>(address);
    std::lock_guard<std::mutex> lock(host_mutex_);
    auto after = host_ranges_.upper_bound(value);
    if (after != host_ranges_.begin()) {
      const auto& [start, range] = *std::prev(after);
      if (value < start + range.bytes) {
        where.kind = range.device < 0 ? AddressKind::kPinnedHost : AddressKind::kDevice;
        where.device = range.device;
      }
    }
  }
  return where;
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

void HostDriver::deallocate(void* address, size_t bytes) {
  if (address == nullptr) return;
  Address where{};
  for (const auto& space : spaces_) {
    if (space->locate(address, &where)) return space->deallocate(address, bytes);
  }
  {
    std::lock_guard<std::mutex> lock(host_mutex_);
    const auto found = host_ranges_.find(reinterpret_cast<uintptr_t>(address));
    if (found == host_ranges_.end() || !found->second.is_own) {
      throw InvalidArgument("deallocate: " + hex(reinterpret_cast<uintptr_t>(address)) +
                            " was not returned by allocate(), allocate_host() or map_shared()");
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
  Address where{};
  for (const auto& space : spaces_) {
    for (const uintptr_t end : {begin, last}) {
      if (space->locate(reinterpret_cast<const void*>(end), &where)) refuse("are device memory");
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
  std::unique_ptr<HostStream> stream(chaos_ != nullptr
                                         ? chaos_->create_stream(options.activity)
                                         : new WorkerStream(options, launch_ == Launch::kBlocking));
  std::lock_guard<std::mutex> lock(streams_mutex_);
  streams_.insert(stream.get());
  return stream.release()->handle();
}

void HostDriver::destroy_stream(Stream handle) {
  if (handle == nullptr) return;
  HostStream* const stream = HostStream::of(handle);
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
  return HostStream::of(stream)->idle();
}

void HostDriver::synchronize_stream(Stream stream, OnFailure on_failure) {
  check_not_null(stream, "synchronize_stream", "stream");
  const Failures failures = HostStream::of(stream)->drain();
  if (on_failure == OnFailure::kRaise) failures.raise();
}

bool HostDriver::runs_in_place(Stream stream) noexcept {
  return stream != nullptr && (!info_.executes_kernels || HostStream::of(stream)->runs_in_place());
}

void HostDriver::submit(Stream stream, const Kernel& kernel) {
  if (stream != nullptr && kernel.run != nullptr && info_.executes_kernels) [[likely]] {
    HostStream::of(stream)->submit(kernel);
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
  check_room(touchable(destination), bytes);
  // What a kernel copies on its own stream is part of the kernel.
  HostStream& own = *HostStream::of(stream);
  HostStream* const told = own.is_mine() ? nullptr : &own;
  const auto move = [told, to = touchable(destination), from = touchable(source), bytes] {
    if (told != nullptr) told->mark_copy();
    host_memory::touch(to, bytes);
    std::memmove(to, from, bytes);
  };
  // Where it runs here anyway, what kind of memory it is does not matter.
  const bool in_place = own.runs_in_place() || is_pageable(destination) || is_pageable(source);
  submit_callable(own, "copy", in_place, move);
}

void HostDriver::fill(Stream stream, void* destination, uint8_t value, size_t bytes) {
  check_not_null(stream, "fill", "stream");
  if (bytes == 0) return;
  check_not_null(destination, "fill", "destination");
  if (!info_.executes_kernels) return;
  check_room(touchable(destination), bytes);
  HostStream& own = *HostStream::of(stream);
  const auto set = [to = touchable(destination), value, bytes] {
    host_memory::touch(to, bytes);
    std::memset(to, value, bytes);
  };
  submit_callable(own, "fill", own.runs_in_place(), set);
}

Event HostDriver::create_event(EventOptions options) { return (new HostEvent(options))->handle(); }

void HostDriver::destroy_event(Event event) { delete HostEvent::of(event); }

void HostDriver::record_event(Event event, Stream stream) {
  check_not_null(event, "record_event", "event");
  check_not_null(stream, "record_event", "stream");
  HostEvent::of(event)->record(HostStream::of(stream)->mark());
}

void HostDriver::wait_event(Stream stream, Event event) {
  check_not_null(stream, "wait_event", "stream");
  check_not_null(event, "wait_event", "event");
  if (const Version::Shared version = HostEvent::of(event)->latest()) {
    HostStream::of(stream)->wait_for(version);
  }
}

bool HostDriver::query_event(Event event) {
  check_not_null(event, "query_event", "event");
  if (chaos_ != nullptr) chaos_->ask();
  const Version::Shared version = HostEvent::of(event)->latest();
  return version == nullptr || version->finished();
}

void HostDriver::synchronize_event(Event event) {
  check_not_null(event, "synchronize_event", "event");
  const Version::Shared version = HostEvent::of(event)->latest();
  if (version == nullptr) return;
  if (chaos_ != nullptr) {
    chaos_->wait(*version);
  } else {
    version->await();
  }
  version->failures().raise();
}

int64_t HostDriver::elapsed_ns(Event start, Event end) {
  const auto time_of = [](Event event, const char* name) {
    check_not_null(event, "elapsed_ns", name);
    if (!HostEvent::of(event)->options.timing) {
      throw InvalidArgument(std::string("elapsed_ns: the ") + name + " event was created without timing");
    }
    const Version::Shared version = HostEvent::of(event)->latest();
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

void HostDriver::set_chaos_seed(uint64_t seed) {
  if (chaos_ == nullptr) throw NotSupported("set_chaos_seed: the launch mode is not chaos");
  chaos_->restart(seed);
}

}  // namespace loom::driver
