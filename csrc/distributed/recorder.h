// The last operations of this process, as NCCL's flight recorder keeps them: for dumps, when a group hangs.
#pragma once

#include <c10/core/ScalarType.h>

#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

namespace loom::distributed {

// A group, as dumps name it; kept when it is gone.
struct RecordedGroup {
  size_t id = 0;
  std::string name, description;
  std::vector<int64_t> ranks;  // of the default group
};

struct RecordedTensor {
  std::vector<int64_t> sizes;
  c10::ScalarType dtype;
};

struct Recorded {
  size_t id = 0;
  std::shared_ptr<const RecordedGroup> group;
  uint64_t sequence = 0, message_sequence = 0;
  std::string name, line;
  std::vector<RecordedTensor> inputs, outputs;
  bool is_message = false;
  std::chrono::milliseconds timeout{};
  // Nanoseconds of the epoch; 0: not yet.
  int64_t created_ns = 0, started_ns = 0, completed_ns = 0;
};

namespace recorder {

// How many operations are kept, 0: none. Forgets what there is.
void set_capacity(size_t capacity);
size_t capacity() noexcept;
// Fills in the identity and the time; the identity, or -1 where nothing is kept.
int64_t keep(Recorded&& entry);
void start(int64_t id);
void complete(int64_t id);
// In the order in which they were issued.
std::vector<Recorded> entries();

}  // namespace recorder

// Writes a dump of this process, when the time of an operation is over; may do nothing.
using Dump = void (*)(int global_rank);
void set_dump(Dump dump) noexcept;
void dump(int global_rank);

}  // namespace loom::distributed
