#include "runtime/tape.h"

#include <algorithm>
#include <atomic>
#include <mutex>
#include <shared_mutex>
#include <utility>
#include <vector>

#include "driver/error.h"

namespace loom::runtime::tape {

std::atomic<int> num_readers{0};

namespace {

struct Attached {
  explicit Attached(std::shared_ptr<TapeReader> own) : reader(std::move(own)) {}
  const std::shared_ptr<TapeReader> reader;
  std::atomic<int> num_calls{0};  // threads that are in its read()
};

// Leaked: readers are detached by whoever has attached them, while static objects are destroyed as well.
std::shared_mutex& readers_mutex = *new std::shared_mutex;
std::vector<std::shared_ptr<Attached>>& readers = *new std::vector<std::shared_ptr<Attached>>;

auto find(const std::shared_ptr<TapeReader>& reader) {
  return std::find_if(readers.begin(), readers.end(),
                      [&](const std::shared_ptr<Attached>& attached) { return attached->reader == reader; });
}

// A call of a reader that has begun.
class Call {
 public:
  explicit Call(std::shared_ptr<Attached> attached) : attached_(std::move(attached)) {
    attached_->num_calls.fetch_add(1, std::memory_order_relaxed);
  }
  Call(Call&& other) noexcept = default;
  ~Call() {
    if (attached_ != nullptr && attached_->num_calls.fetch_sub(1, std::memory_order_release) == 1) {
      attached_->num_calls.notify_all();
    }
  }
  TapeReader& reader() const { return *attached_->reader; }

 private:
  std::shared_ptr<Attached> attached_;
};

}  // namespace

void attach(const std::shared_ptr<TapeReader>& reader) {
  std::unique_lock<std::shared_mutex> lock(readers_mutex);
  if (find(reader) != readers.end()) throw InvalidArgument("the reader is attached to the tape already");
  readers.push_back(std::make_shared<Attached>(reader));
  num_readers.store(static_cast<int>(readers.size()), std::memory_order_release);
}

void detach(const std::shared_ptr<TapeReader>& reader) {
  std::shared_ptr<Attached> attached;
  {
    std::unique_lock<std::shared_mutex> lock(readers_mutex);
    const auto found = find(reader);
    if (found == readers.end()) throw InvalidArgument("the reader is not attached to the tape");
    attached = *found;
    readers.erase(found);
    num_readers.store(static_cast<int>(readers.size()), std::memory_order_release);
  }
  for (int calls = 0; (calls = attached->num_calls.load(std::memory_order_acquire)) != 0;) {
    attached->num_calls.wait(calls, std::memory_order_acquire);
  }
}

void write(const Command& command) {
  // No lock is held while a reader works: it may need Python's.
  std::vector<Call> calls;
  {
    std::shared_lock<std::shared_mutex> lock(readers_mutex);
    calls.reserve(readers.size());
    for (const std::shared_ptr<Attached>& attached : readers) calls.emplace_back(attached);
  }
  for (const Call& call : calls) call.reader().read(command);
}

}  // namespace loom::runtime::tape
