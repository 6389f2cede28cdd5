// Failures that were not raised where they happened, and what depends on them.
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <exception>
#include <memory>
#include <utility>
#include <vector>

namespace loom::driver {

// What a kernel threw, kept until a thread that waits for its work raises it. Time counts the failures raised
// so far: dependent work that was submitted before this failure was raised is dropped, later work is not.
class Failure {
 public:
  using Shared = std::shared_ptr<Failure>;

  explicit Failure(std::exception_ptr error) : error_(std::move(error)) {}
  // The time to note at submission; only loads.
  static uint64_t now() noexcept { return clock_.load(std::memory_order_acquire); }
  bool drops(uint64_t submitted) const noexcept {
    const uint64_t raised = raised_.load(std::memory_order_acquire);
    return raised == kKept || submitted < raised;
  }
  // Throws the error in the first thread that calls this, does nothing in all others.
  void raise() {
    if (raised_.load(std::memory_order_acquire) != kKept) return;
    uint64_t kept = kKept;
    const uint64_t time = clock_.fetch_add(1, std::memory_order_acq_rel) + 1;
    if (raised_.compare_exchange_strong(kept, time, std::memory_order_acq_rel)) {
      std::rethrow_exception(std::exchange(error_, nullptr));
    }
  }

 private:
  static constexpr uint64_t kKept = 0;
  inline static std::atomic<uint64_t> clock_{0};
  std::atomic<uint64_t> raised_{kKept};
  std::exception_ptr error_;
};

// The failures that some work depends on: seldom any, hardly ever more than one.
class Failures {
 public:
  bool empty() const noexcept { return failures_.empty(); }
  void add(Failure::Shared failure) {
    if (std::find(failures_.begin(), failures_.end(), failure) == failures_.end()) {
      failures_.push_back(std::move(failure));
    }
  }
  void add(const Failures& others) {
    for (const Failure::Shared& failure : others.failures_) add(failure);
  }
  // Forgets those that do not drop what was submitted at this time or later.
  void forget(uint64_t submitted) noexcept {
    const auto is_past = [&](const Failure::Shared& failure) { return !failure->drops(submitted); };
    failures_.erase(std::remove_if(failures_.begin(), failures_.end(), is_past), failures_.end());
  }
  // Throws the first that was not raised yet, if there is one.
  void raise() const {
    for (const Failure::Shared& failure : failures_) failure->raise();
  }

 private:
  std::vector<Failure::Shared> failures_;
};

}  // namespace loom::driver
