// Between start() and stop(), follows the ops in progress on each thread, outermost first, and which tensors
// of the host hold data that came from a device. Readers of the tape ask it about the command that they
// receive. It sees ops through PyTorch's RecordFunction, and costs nothing while it is stopped.
#pragma once

#include <c10/core/ScalarType.h>

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

namespace loom::glue::op_watch {

// start() and stop() are counted, and may be called from any thread.
void start();
void stop();

enum class Direction : uint8_t { kNone, kWithin, kToHost, kToDevice };

// The innermost op in progress on this thread.
struct OpInProgress {
  std::vector<std::string> names;  // outermost first; empty: no op is in progress
  bool is_cast_asked = false;      // the outermost op was given a dtype, or runs under autocast
  // Of a copy_: where it goes, what the caller said, whether the host's side is pinned, its size.
  Direction direction = Direction::kNone;
  bool non_blocking = false, is_pinned = false;
  int64_t bytes = 0;
  int64_t departure = 0;  // of a copy to the host: the number that its data is known by from then on
  int64_t origin = 0;     // its operand on the host holds data of this departure; 0: of none
  int64_t origin_bytes = 0;
  int64_t source_origin = 0;  // the same, known by the tensor itself and not by its contents
  // Of the operands on a device: dtype, number of dimensions.
  std::vector<std::pair<c10::ScalarType, int64_t>> operands;
};

OpInProgress current();

}  // namespace loom::glue::op_watch
