#include "distributed/completions.h"

#include <condition_variable>
#include <deque>
#include <mutex>
#include <thread>
#include <utility>

namespace loom::distributed {

namespace {

// Leaked: the thread may outlive static objects.
struct Queue {
  std::mutex mutex;
  std::condition_variable arrived;
  std::deque<std::function<void()>> waiting;
  bool is_started = false;

  void run() {
    for (;;) {
      std::function<void()> body;
      {
        std::unique_lock<std::mutex> lock(mutex);
        arrived.wait(lock, [&] { return !waiting.empty(); });
        body = std::move(waiting.front());
        waiting.pop_front();
      }
      body();
    }
  }
};
Queue& queue() {
  static auto* const instance = new Queue;
  return *instance;
}

}  // namespace

void call_later(std::function<void()> body) {
  Queue& own = queue();
  const std::lock_guard<std::mutex> lock(own.mutex);
  if (!own.is_started) std::thread([&own] { own.run(); }).detach();
  own.is_started = true;
  own.waiting.push_back(std::move(body));
  own.arrived.notify_one();
}

}  // namespace loom::distributed
