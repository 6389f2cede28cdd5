// A third driver, which shares no code with the two that are built in: it is written against driver.h alone.
// It looks like a card from outside. Its streams and events are types of its own, the addresses of its memory
// lead nowhere for whoever does not ask locate(), and a failure ends it for the rest of the process.
#include <cstring>
#include <memory>
#include <utility>

#include "driver/driver.h"
#include "memory.h"
#include "streams.h"

namespace loom::mirror {

namespace {

using namespace loom::driver;

Info info_of(const DriverConfig& config) {
  return {.name = "mirror",
          .engine = "cpu",
          .device_count = config.device_count,
          .executes_kernels = true,
          .queues_kernels = config.launch != Launch::kBlocking,
          .sticky_failures = true,
          .host_addressable = false,
          .unified_addresses = false,
          .peer_access = false,
          .shared_memory = true,
          .memory_rooms = false,
          .stream_priorities = false,
          .stream_activity = false};
}

class Mirror final : public Driver {
 public:
  explicit Mirror(const DriverConfig& config)
      : info_(info_of(config)),
        memory_(config),
        streams_(config.launch == Launch::kBlocking, *config.program) {}

  const Info& info() const noexcept override { return info_; }

  void* allocate(int device, size_t bytes, Place place) override {
    if (place.room_bytes != 0 || place.at != nullptr) throw NotSupported("mirror has no rooms for memory");
    return memory_.allocate(device, bytes);
  }
  void* allocate_host(size_t bytes) override { return memory_.allocate_host(bytes); }
  void deallocate(void* address, size_t /*bytes*/) override { memory_.deallocate(address); }
  MemoryInfo memory_info(int device) const override { return memory_.info(device); }
  Address locate(const void* address) const noexcept override { return memory_.locate(address); }
  void register_memory(int device, void* address, size_t bytes) override {
    memory_.add(device, address, bytes);
  }
  void unregister_memory(void* address) override { memory_.remove(address); }
  SharedMemory share(int device, const void* address) override { return memory_.share(device, address); }
  void* map_shared(int device, const ShareHandle& handle, size_t bytes) override {
    return memory_.map_shared(device, handle, bytes);
  }

  Stream create_stream(int device, StreamOptions options) override {
    memory_.check_device(device);
    return streams_.create(options);
  }
  void destroy_stream(Stream stream) override { streams_.destroy(stream); }
  bool query_stream(Stream stream) override { return streams_.is_idle(stream); }
  void synchronize_stream(Stream stream, OnFailure on_failure) override {
    streams_.synchronize(stream, on_failure);
  }
  bool runs_in_place(Stream stream) noexcept override { return streams_.runs_in_place(stream); }

  void submit(Stream stream, const Kernel& kernel) override { streams_.submit(stream, kernel); }
  void copy(Stream stream, void* destination, const void* source, size_t bytes) override {
    check(stream, "copy", "stream");
    if (bytes == 0) return;
    check(destination, "copy", "destination");
    check(source, "copy", "source");
    const Address to = locate(destination), from = locate(source);
    const bool is_pageable = to.kind == AddressKind::kUnknown || from.kind == AddressKind::kUnknown;
    submit_own(stream, "copy", is_pageable, [to = to.engine_address, from = from.engine_address, bytes] {
      std::memmove(to, from, bytes);
    });
  }
  void fill(Stream stream, void* destination, uint8_t value, size_t bytes) override {
    check(stream, "fill", "stream");
    if (bytes == 0) return;
    check(destination, "fill", "destination");
    submit_own(stream, "fill", /*in_place=*/false,
               [to = locate(destination).engine_address, value, bytes] { std::memset(to, value, bytes); });
  }

  Event create_event(EventOptions options) override { return streams_.create_event(options); }
  void destroy_event(Event event) override { streams_.destroy_event(event); }
  void record_event(Event event, Stream stream) override { streams_.record(event, stream); }
  void wait_event(Stream stream, Event event) override { streams_.wait(stream, event); }
  bool query_event(Event event) override { return streams_.is_finished(event); }
  void synchronize_event(Event event) override { streams_.synchronize(event); }
  int64_t elapsed_ns(Event start, Event end) override { return streams_.elapsed_ns(start, end); }

 private:
  static void check(const void* handle, const char* method, const char* what) {
    if (handle == nullptr) throw InvalidArgument(std::string(method) + ": " + what + " must not be null");
  }

  template <typename F>
  void submit_own(Stream stream, const char* name, bool in_place, F work) {
    const auto run = [](void* context, Stream) { (*static_cast<F*>(context))(); };
    const auto release = [](void* context) { delete static_cast<F*>(context); };
    streams_.submit(stream, {name, run, release, new F(std::move(work)), in_place});
  }

  const Info info_;
  Memory memory_;
  Streams streams_;  // ends first: its workers use the memory
};

Driver* create(const DriverConfig& config) {
  if (config.launch == Launch::kChaos) {
    throw NotSupported("the driver mirror has no launch mode chaos: use auto or blocking");
  }
  return std::make_unique<Mirror>(config).release();
}

}  // namespace

LOOM_DRIVER_LIBRARY(create);

}  // namespace loom::mirror
