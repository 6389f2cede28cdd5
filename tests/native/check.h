// A small harness: TEST(name) { … } registers a test, CHECK ends it with a message. main.cpp runs them all.
#pragma once

#include <atomic>
#include <memory>
#include <sstream>
#include <stdexcept>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "driver/registry.h"

namespace loom::test {

struct Failed : std::runtime_error {
  using std::runtime_error::runtime_error;
};

struct Test {
  const char* name;
  void (*run)();
};
inline std::vector<Test>& tests() {
  static std::vector<Test> all;
  return all;
}
struct Register {
  Register(const char* name, void (*run)()) { tests().push_back({name, run}); }
};

#define TEST(name)                                                  \
  static void name();                                               \
  static const ::loom::test::Register register_##name(#name, name); \
  static void name()

#define CHECK(condition)                                                                         \
  do {                                                                                           \
    if (!(condition)) {                                                                          \
      throw ::loom::test::Failed(std::string(__FILE__) + ":" + std::to_string(__LINE__) + ": " + \
                                 #condition);                                                    \
    }                                                                                            \
  } while (false)

// Whether the call throws exactly this.
template <typename E, typename F>
bool throws(F&& call) {
  try {
    call();
  } catch (const E&) {
    return true;
  }
  return false;
}

// Opens once; nobody sleeps for a guessed time.
class Gate {
 public:
  void open() {
    open_.store(1);
    open_.notify_all();
  }
  void wait() const { open_.wait(0); }

 private:
  std::atomic<int> open_{0};
};

// A driver under test, with what tests do to it all the time.
class Chip {
 public:
  static constexpr int64_t kBytes = 64 << 20;
  explicit Chip(driver::Launch launch = driver::Launch::kAuto, uint64_t seed = 0, bool protect = false)
      : driver_(driver::create_driver("virtual", {2, kBytes, launch, seed, protect})) {}

  driver::Driver* operator->() const { return driver_.get(); }
  driver::Driver& operator*() const { return *driver_; }
  // Streams and events end with the driver and with this.
  driver::Stream inline_stream() { return driver_->create_stream(0, {}); }
  driver::Stream side_stream() { return driver_->create_stream(0, {0, /*inline_when_idle=*/false}); }
  driver::Event event() { return events_.emplace_back(driver_->create_event({})); }
  driver::Event recorded(driver::Stream stream) {
    const driver::Event event = this->event();
    driver_->record_event(event, stream);
    return event;
  }
  // Submits any callable.
  template <typename F>
  void submit(driver::Stream stream, F callable, bool in_place = false) {
    driver_->submit(stream, {"test", [](void* context, driver::Stream) { (*static_cast<F*>(context))(); },
                             [](void* context) { delete static_cast<F*>(context); },
                             new F(std::move(callable)), in_place});
  }
  ~Chip() {
    for (const driver::Event event : events_) driver_->destroy_event(event);
  }

 private:
  std::unique_ptr<driver::Driver> driver_;
  std::vector<driver::Event> events_;
};

}  // namespace loom::test
