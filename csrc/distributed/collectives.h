// Collectives over a transport: what each rank shows and takes in each round.
#pragma once

#include <c10/core/ScalarType.h>

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "distributed/operation.h"
#include "distributed/transport/transport.h"

namespace loom::distributed {

struct Bytes {
  char* data = nullptr;
  size_t size = 0;
};

// One operation of a rank. A list of pieces has one for each rank, or none; what is not taken is empty.
struct Task {
  Operation operation;
  std::vector<Bytes> gives;  // one that all ranks see (kAllReduce, kAllGather, …), or one for each rank
  std::vector<Bytes> takes;  // one, or one of each rank
  c10::ScalarType dtype = c10::ScalarType::Byte;
  double factor = 1;  // of kScaledSum
};

// Moves the bytes, and returns when the latest rank was ready. Throws Error where the ranks' operations do
// not belong together, a rank has failed or ended, and TimedOut.
struct Rules {
  Transport::Clock::time_point deadline;
  bool checks = true;            // false: what does not belong together waits until the time is over
  bool one_device_each = false;  // two ranks on one device are refused
};
// `shown`: its first round, where show_first() has posted that.
int64_t run_collective(Transport& transport, const Task& task, const Rules& rules,
                       std::optional<uint64_t> shown = {});
// Sends and receives that are under way together: when the latest of those that send to this rank was ready.
int64_t run_messages(Transport& transport, std::span<const Task> tasks, const Rules& rules);

// --- without a wait ---

// Posts the first round of a small collective, and returns its number.
std::optional<uint64_t> show_first(Transport& transport, const Task& task);
// Whether all ranks have shown their part in that round, of the same collective, and none has more to show.
bool can_end_now(Transport& transport, uint64_t round);
// Of a send or receive, all that passes.
inline size_t size_of_message(const Task& task) {
  return sizeof(Operation) + (task.operation.kind == Kind::kSend ? task.gives[0] : task.takes[0]).size;
}
// Whether all bytes of these sends and receives have room, or are there.
bool can_move_now(Transport& transport, std::span<const Task> tasks);

}  // namespace loom::distributed
