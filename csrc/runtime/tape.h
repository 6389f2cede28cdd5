// The tape: every command of every device, told to whoever listens at the moment it is issued, in the thread
// that issues it. Without a listener it costs one predictable branch.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>

namespace loom::runtime {

enum class CommandKind : uint8_t {
  kKernel,
  kCopy,
  kFill,
  kRecordEvent,
  kWaitEvent,
  kAllocate,
  kFree,
  kRecordStream,  // a block is used on another stream than the one it was taken for
  kSynchronizeStream,
  kSynchronizeEvent,
  kSynchronizeDevice,
  kReplay,        // of a graph: its commands follow, each told again
  kOutput,        // memory that the kernel told last on the stream, by the same thread, took for a result: it
                  // writes it
  kQueryStream,   // that found everything finished
  kQueryEvent,    // that found it finished
  kDestroyEvent,  // its address may come back as another event's
  kFallback,      // the chip does not do itself what this thread issues next: an op, or its dtype
  kCreateEvent,
  kCreateStream,
};

// A tensor that a command reads or writes: element addresses are address + Σ index·stride, in elements of
// item_bytes.
struct Operand {
  const void* address;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t num_dims;
  int32_t item_bytes;
  bool is_written;
};

// One command. What it points to lives until the listener returns.
struct Command {
  CommandKind kind;
  int device;         // logical index; −1 for host memory (kAllocate of a pinned block)
  int64_t stream;     // 0 is the default stream
  const char* name;   // the op of a kernel or a fallback, or what the kind is called
  const char* dtype;  // kFallback: the dtype that is the reason; null: the op itself is
  const void* event;  // kRecordEvent, kWaitEvent, kSynchronizeEvent, kQueryEvent, kDestroyEvent, kCreateEvent
  const void* address;  // kAllocate, kFree, kRecordStream, kOutput, kFill, kCopy: the block or destination
  const void* source;   // kCopy
  size_t bytes;
  const Operand* operands;  // kKernel: what it reads and writes
  size_t num_operands;
  bool is_captured;  // kept by a graph and not run now
};

class TapeReader {
 public:
  virtual ~TapeReader() = default;
  // Called in the issuing thread before the command is submitted. What it throws leaves the call that issued
  // the command, which is then not submitted.
  virtual void read(const Command& command) = 0;
};

namespace tape {

extern std::atomic<int> num_readers;

inline bool is_read() noexcept { return num_readers.load(std::memory_order_relaxed) != 0; }

// A reader hears of commands issued after attach() returned; detach() returns when it is told of none any
// more. A reader must not attach or detach readers while it reads.
void attach(const std::shared_ptr<TapeReader>& reader);
void detach(const std::shared_ptr<TapeReader>& reader);
void write(const Command& command);

}  // namespace tape

}  // namespace loom::runtime
