#include "driver/host/gate.h"

#include <algorithm>
#include <chrono>
#include <list>
#include <mutex>
#include <thread>

namespace loom::driver::gate {

namespace detail {
std::atomic<bool> is_closed{false};
LOOM_FAST_ACCESS constinit thread_local std::atomic<bool>* is_inside = nullptr;
}  // namespace detail

namespace {

using std::chrono::microseconds;

// Leaked: threads may outlive every static object.
struct Threads {
  std::mutex mutex;  // also held while the gate is closed: by one thread at a time, and the list stays
  std::list<std::atomic<bool>> inside;
};

Threads& threads() {
  static auto* const all = new Threads;
  return *all;
}

std::list<std::atomic<bool>>::iterator enlist() {
  const std::lock_guard<std::mutex> lock(threads().mutex);
  threads().inside.emplace_back(false);
  return std::prev(threads().inside.end());
}

thread_local bool has_ended = false;

// Takes a thread off the list at its end.
struct Membership {
  const std::list<std::atomic<bool>>::iterator place = enlist();
  ~Membership() {
    const std::lock_guard<std::mutex> lock(threads().mutex);
    threads().inside.erase(place);
    detail::is_inside = nullptr;
    has_ended = true;
  }
};

// Waits for the threads in kernels, but not for longer than `patience`.
bool all_leave(const std::list<std::atomic<bool>>& threads, microseconds patience) {
  const auto end = std::chrono::steady_clock::now() + patience;
  for (const std::atomic<bool>& inside : threads) {
    while (&inside != detail::is_inside && inside.load(std::memory_order_seq_cst)) {
      if (std::chrono::steady_clock::now() > end) return false;
      std::this_thread::sleep_for(microseconds(20));
    }
  }
  return true;
}

void open() noexcept {
  detail::is_closed.store(false, std::memory_order_seq_cst);
  detail::is_closed.notify_all();
}

}  // namespace

std::atomic<bool>& detail::join() {
  if (has_ended) {  // a kernel of a destructor that runs later still: its entry stays
    is_inside = &*enlist();
  } else {
    static thread_local const Membership membership;
    is_inside = &*membership.place;
  }
  return *is_inside;
}

void detail::wait_and_enter(std::atomic<bool>& inside) noexcept {
  do {
    inside.store(false, std::memory_order_seq_cst);
    is_closed.wait(true, std::memory_order_seq_cst);
    inside.exchange(true, std::memory_order_seq_cst);
  } while (is_closed.load(std::memory_order_seq_cst));
}

void while_closed(const std::function<void()>& body) {
  constexpr microseconds kFirst(500), kLongest(200'000);
  for (microseconds patience = kFirst;; patience = std::min(2 * patience, kLongest)) {
    {
      const std::lock_guard<std::mutex> lock(threads().mutex);
      struct Closed {
        Closed() { detail::is_closed.store(true, std::memory_order_seq_cst); }
        ~Closed() { open(); }
      } const closed;
      if (all_leave(threads().inside, patience)) {
        body();
        return;
      }
    }
    std::this_thread::sleep_for(patience);
  }
}

}  // namespace loom::driver::gate
