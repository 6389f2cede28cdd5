#include "runtime/tape.h"

#include <algorithm>
#include <mutex>
#include <shared_mutex>
#include <vector>

#include "driver/error.h"

namespace loom::runtime::tape {

std::atomic<int> num_readers{0};

namespace {

std::shared_mutex readers_mutex;
std::vector<std::shared_ptr<TapeReader>> readers;

}  // namespace

void attach(const std::shared_ptr<TapeReader>& reader) {
  std::unique_lock<std::shared_mutex> lock(readers_mutex);
  if (std::find(readers.begin(), readers.end(), reader) != readers.end()) {
    throw InvalidArgument("the reader is attached to the tape already");
  }
  readers.push_back(reader);
  num_readers.store(static_cast<int>(readers.size()), std::memory_order_release);
}

void detach(const std::shared_ptr<TapeReader>& reader) {
  std::unique_lock<std::shared_mutex> lock(readers_mutex);
  const auto found = std::find(readers.begin(), readers.end(), reader);
  if (found == readers.end()) throw InvalidArgument("the reader is not attached to the tape");
  readers.erase(found);
  num_readers.store(static_cast<int>(readers.size()), std::memory_order_release);
}

void write(const Command& command) {
  // Copied, so that no lock is held while a reader works (it may need Python's).
  std::vector<std::shared_ptr<TapeReader>> now;
  {
    std::shared_lock<std::shared_mutex> lock(readers_mutex);
    now = readers;
  }
  for (const std::shared_ptr<TapeReader>& reader : now) reader->read(command);
}

}  // namespace loom::runtime::tape
