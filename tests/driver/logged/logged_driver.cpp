// The driver `virtual` with a log of its own of what it was told: the tests compare it with the tape.
#include <cstring>
#include <mutex>
#include <string>

#include "driver/host/host_driver.h"
#include "util/clock.h"
#include "util/waiting.h"

namespace {

using namespace loom::driver;

std::mutex mutex;
std::string told;  // a line each: kind, tab, name

void note(const char* kind, const char* name) {
  const std::lock_guard<std::mutex> lock(mutex);
  told.append(kind).append("\t").append(name).append("\n");
}

class LoggedDriver final : public HostDriver {
 public:
  explicit LoggedDriver(const DriverConfig& config)
      : HostDriver({.name = "logged",
                    .engine = "cpu",
                    .device_count = config.device_count,
                    .executes_kernels = true,
                    .queues_kernels = config.launch != Launch::kBlocking,
                    .sticky_failures = false,
                    .host_addressable = !config.protect,
                    .unified_addresses = !config.protect,
                    .peer_access = true,
                    .shared_memory = true,
                    .memory_rooms = true,
                    .stream_priorities = false,
                    .stream_activity = true},
                   config) {}

  void submit(Stream stream, const Kernel& kernel) override {
    note("kernel", kernel.name);
    HostDriver::submit(stream, kernel);
  }
  void copy(Stream stream, void* destination, const void* source, size_t bytes) override {
    note("copy", std::to_string(bytes).c_str());
    HostDriver::copy(stream, destination, source, bytes);
  }
  void fill(Stream stream, void* destination, uint8_t value, size_t bytes) override {
    note("fill", std::to_string(bytes).c_str());
    HostDriver::fill(stream, destination, value, bytes);
  }
  void record_event(Event event, Stream stream) override {
    note("record_event", "");
    HostDriver::record_event(event, stream);
  }
  void wait_event(Stream stream, Event event) override {
    note("wait_event", "");
    HostDriver::wait_event(stream, event);
  }
};

// The classes that it shares with `virtual` read this library's own copy of the clock.
class ProgramsClock final : public loom::clock::Source {
 public:
  explicit ProgramsClock(const Program& program) : program_(program) {}
  int64_t now_ns() noexcept override { return program_.now_ns(); }
  uint64_t ticks() noexcept override { return program_.ticks(); }

 private:
  const Program& program_;
};

Driver* create(const DriverConfig& config) {
  static ProgramsClock source(*config.program);
  loom::clock::set_source(&source);
  loom::set_wait_check(config.program->check_wait);
  return new LoggedDriver(config);
}

}  // namespace

LOOM_DRIVER_LIBRARY(create);

// Moves the log into `text`, as far as it fits; returns its whole length.
extern "C" __attribute__((visibility("default"))) size_t take_log(char* text, size_t size) {
  const std::lock_guard<std::mutex> lock(mutex);
  const size_t length = told.size();
  std::memcpy(text, told.data(), length < size ? length : size);
  told.clear();
  return length;
}
