// What one profile records of the devices: a reader of the tape that keeps every command with its times, and
// with the ops and ranges of its thread in which it was issued.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "runtime/op_record.h"
#include "runtime/tape.h"
#include "runtime/timing.h"

namespace loom::glue {

// A range of the program's that a thread is in, in a chain with those around it.
struct OpenRange {
  uint64_t correlation;  // PyTorch's id of a record_function(); 0 for a range of nvtx
  std::string name;      // of a range of nvtx
  std::shared_ptr<const OpenRange> outer;
};

// Ranges of nvtx, of this thread: they are there whether or not a profile runs.
void push_range(const std::string& name);
void pop_range();

class ProfileRecorder final : public runtime::TapeReader {
 public:
  struct Record {
    runtime::CommandKind kind;
    int device;
    int64_t stream;
    std::string name;
    runtime::ShapeClass shape_class;  // of the op, if the kernel has an op
    std::string grid, block;          // of a kernel of the program's own, as "[1, 1, 1]"; empty: it has none
    const void* event;
    size_t bytes;
    const char* direction;                    // of a copy
    int32_t thread;                           // the operating system's id of the issuing thread
    uint64_t op;                              // PyTorch's id of the op that it was issued in; 0: in none
    std::shared_ptr<const OpenRange> scopes;  // record_function()s
    std::shared_ptr<const OpenRange> ranges;  // of nvtx
    // Without a time of return: the command was issued by the last kReplay of its thread and stream.
    runtime::timing::Shared times;
  };

  ProfileRecorder();

  void begin(const runtime::Command& command) override;

  // Called by PyTorch for each op and record_function() of the threads that it profiles.
  void push_op(uint64_t correlation);
  void pop_op();
  void push_scope(uint64_t correlation);
  void pop_scope();

  // Returns the records, in the order of their issue, and forgets them.
  std::deque<Record> take();

  // Whether commands are kept that are issued from now on: the gate of torch.loom.profiler.
  void set_open(bool is_open) { is_open_ = is_open; }

 private:
  struct Thread;
  Thread& here();

  const uint64_t id_;
  std::atomic<bool> is_open_{true};
  std::mutex mutex_;
  std::deque<Record> records_;
};

}  // namespace loom::glue
