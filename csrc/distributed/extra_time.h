// Time that works get on top of their group's, until one that got it has ended: what
// _add_ephemeral_timeout() asks for, counted as ProcessGroupNCCL counts it.
#pragma once

#include <chrono>
#include <mutex>
#include <utility>

namespace loom::distributed {

class ExtraTime {
 public:
  using Time = std::chrono::milliseconds;

  void add(Time time) {
    const std::lock_guard<std::mutex> lock(mutex_);
    extra_ += time;
  }
  // What a work gets on top, and the part of it that ends with this work.
  std::pair<Time, Time> give() {
    const std::lock_guard<std::mutex> lock(mutex_);
    return {extra_, extra_ - std::exchange(in_flight_, extra_)};
  }
  void take_back(Time time) {
    const std::lock_guard<std::mutex> lock(mutex_);
    extra_ -= time;
    in_flight_ -= time;
  }

 private:
  std::mutex mutex_;
  Time extra_{0}, in_flight_{0};
};

}  // namespace loom::distributed
