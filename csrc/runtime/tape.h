// The tape reports every command of every device to its readers, in the thread that issues the command. A
// command has two moments: its *begin*, before it is submitted, where a reader may refuse it, and its *end*,
// when the call that issued it is about to return and a kernel's outputs are known. Without a reader that
// wants its kind, a command costs one predictable branch; reading takes no lock and allocates nothing.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "runtime/op_record.h"

namespace loom::runtime {

enum class CommandKind : uint8_t {
  kKernel,
  kCopy,
  kFill,
  kRecordEvent,
  kWaitEvent,
  kAllocate,
  kFree,
  kRecordStream,  // a block is used on another stream than its own
  kSynchronizeStream,
  kSynchronizeEvent,
  kSynchronizeDevice,
  kReplay,  // of a graph: its commands follow, each reported again
  // Bytes of a result that are moved to the result's memory, since the kernel that computed it had no place
  // there: part of the kernel that the same thread reported last on the stream, and of its cost.
  kStoreResult,
  kQueryStream,   // that found everything finished
  kQueryEvent,    // that found it finished
  kDestroyEvent,  // its address may come back as another event's
  kCreateEvent,
  kCreateStream,
  kFallback,  // the chip does not do itself what this thread issues next: an op, or its dtype
};
inline constexpr int kNumCommandKinds = static_cast<int>(CommandKind::kFallback) + 1;

// A set of kinds, a bit each.
using CommandKinds = uint32_t;
constexpr CommandKinds kinds_of(std::initializer_list<CommandKind> kinds) {
  CommandKinds all = 0;
  for (const CommandKind kind : kinds) all |= CommandKinds{1} << static_cast<int>(kind);
  return all;
}
inline constexpr CommandKinds kAllKinds = (CommandKinds{1} << kNumCommandKinds) - 1;

// A tensor that a kernel reads or writes: element addresses are address + Σ index·stride, in elements of
// item_bytes. The address is null where there is no memory (no elements).
struct Operand {
  const void* address;
  const int64_t* sizes;
  const int64_t* strides;
  int32_t num_dims;
  int32_t item_bytes;
  int8_t dtype;  // PyTorch's number of it (c10::ScalarType); −1: bytes of no dtype
  bool is_written;
};

// An argument of an op that is no tensor, by the name that the op's schema gives it. What holds a number of
// PyTorch's (dtype, layout, memory format) is an integer. Devices and generators are left out.
struct Attribute {
  enum class Kind : uint8_t {
    kNone,
    kBool,
    kInteger,
    kReal,
    kComplex,
    kBools,     // `integers`, 0 or 1 each
    kIntegers,  // `integers`
    kReals,     // `reals`
    kText,      // `text`, not ended by a zero
  };
  const char* name;
  Kind kind;
  uint32_t count;  // of a list's values, or of a text's characters
  union {
    int64_t integer;  // also of a bool
    double real;
    const int64_t* integers;
    const double* reals;
    const char* text;
  };
  double imaginary;  // of kComplex
};

struct CommandTimes;  // timing.h

// One command. What it points to lives until the reader returns.
struct Command {
  CommandKind kind;
  int device;         // logical index; −1 for host memory (kAllocate of a pinned block)
  int64_t stream;     // 0 is the default stream
  const char* name;   // the op of a kernel or a fallback ("aten::add.Tensor"), or what the kind is called
  const char* dtype;  // kFallback: the dtype that is the reason; null: the op itself is
  const void* event;  // kRecordEvent, kWaitEvent, kSynchronizeEvent, kQueryEvent, kDestroyEvent, kCreateEvent
  const void*
      address;  // kAllocate, kFree, kRecordStream, kFill, kCopy, kStoreResult: the block or destination
  const void* source;  // kCopy, kStoreResult
  size_t bytes;

  // Of kKernel, the same on every stream, in every launch mode and in replays.
  const OpRecord* op;  // null: the kernel is no op ("sleep", a compiled kernel)
  // Tensors of the device among the arguments, in their order, those of lists one by one; a tensor that is
  // given twice stands there twice. At the end they have the sizes that the kernel has left them with.
  std::span<const Operand> inputs;
  std::span<const Attribute> attributes;
  // At the end: tensors of the device that the op returned, in place ones and views as well; those that it
  // wrote, where it returns nothing.
  std::span<const Operand> outputs;

  bool is_captured;  // kept by a graph and not run now
  bool has_failed;   // at the end: the command was refused, or the call that issued it threw
  // At the begin: where a reader that wants to know when the command is issued and run leaves an object for
  // the times, if no other has; null where there are none to be had (memory, queries, what is captured).
  std::shared_ptr<CommandTimes>* times;
};

// What a kind is called.
const char* name_of(CommandKind kind) noexcept;

// The only way to fill a command: all else is empty, and the name is that of the kind.
inline Command describe(CommandKind kind, int device, int64_t stream, const char* name) noexcept {
  return {kind, device,  stream, name, nullptr, nullptr, nullptr, nullptr,
          0,    nullptr, {},     {},   {},      false,   false,   nullptr};
}
inline Command describe(CommandKind kind, int device, int64_t stream) noexcept {
  return describe(kind, device, stream, name_of(kind));
}

// Is called in the thread that issues a command. Besides the readers' own work, a reported command costs one
// mark of the thread at each of the two moments that a reader wants, and no lock, no allocation and no
// reference count. A reader that wants ends alone, as a clock does, pays for one moment.
class TapeReader {
 public:
  // The kinds whose begins and ends it receives. Memory, queries, creation, destruction and fallbacks have a
  // begin alone.
  // `undemanded`: kinds that it receives only if they are described anyway: for another reader, or by the
  // issuer's choice.
  explicit TapeReader(CommandKinds begins = kAllKinds, CommandKinds ends = 0,
                      CommandKinds undemanded = 0) noexcept
      : begins_(begins), ends_(ends), undemanded_(undemanded) {}
  virtual ~TapeReader() = default;
  TapeReader(const TapeReader&) = delete;
  TapeReader& operator=(const TapeReader&) = delete;

  // Called in the issuing thread before the command is submitted. What it throws leaves the call that issued
  // the command, which is then not submitted.
  virtual void begin(const Command& /*command*/) {}
  // Called in the issuing thread, once for each begin that returned and whose kind is among the ends (also
  // where no begin was wanted), before the call that issued the command returns. The command has been
  // submitted, and has run if it ran in place; what end() throws leaves that call all the same, except where
  // the command had failed: that failure is what is thrown.
  virtual void end(const Command& /*command*/) {}

  CommandKinds begins() const noexcept { return begins_; }
  CommandKinds ends() const noexcept { return ends_; }
  CommandKinds undemanded() const noexcept { return undemanded_; }

 private:
  const CommandKinds begins_, ends_, undemanded_;
};

namespace tape {

namespace detail {

// The begins that some reader wants, and above them the ends.
extern std::atomic<uint64_t> wanted;
// The kinds that some reader demands.
extern std::atomic<CommandKinds> demanded;
// The number of the reader attached last; they are numbered in the order of their attachment.
extern std::atomic<uint64_t> last_number;
extern std::atomic<size_t> num_readers;

struct Slot;  // tape.cpp

}  // namespace detail

// Whether a reader wants commands of this kind. The answer may change at any moment: ask once per command.
inline bool is_told(CommandKind kind) noexcept {
  constexpr uint64_t kBoth = (uint64_t{1} << 32) | 1;
  return (detail::wanted.load(std::memory_order_relaxed) & (kBoth << static_cast<int>(kind))) != 0;
}
// Whether a reader requires commands of this kind, described or not.
inline bool is_demanded(CommandKind kind) noexcept {
  return (detail::demanded.load(std::memory_order_relaxed) >> static_cast<int>(kind) & 1) != 0;
}
// Whether there is a reader at all.
inline bool is_read() noexcept { return detail::wanted.load(std::memory_order_relaxed) != 0; }
inline size_t num_readers() noexcept { return detail::num_readers.load(std::memory_order_relaxed); }
inline bool is_begin_told(CommandKind kind) noexcept {
  return (detail::wanted.load(std::memory_order_relaxed) >> static_cast<int>(kind) & 1) != 0;
}
inline bool is_end_told(CommandKind kind) noexcept {
  return (detail::wanted.load(std::memory_order_relaxed) >> 32 >> static_cast<int>(kind) & 1) != 0;
}

// A reader receives the commands that begin after attach() returned. detach() waits until no other thread is
// calling the reader, except threads inside detach(): a reader may call it, and two such threads would
// deadlock. Do not call it with a lock held that a reader takes.
void attach(const std::shared_ptr<TapeReader>& reader);
void detach(const std::shared_ptr<TapeReader>& reader);

// Which readers know of a command: those whose begin() returned. One object reports its begin and its end, in
// one thread.
class Told {
 public:
  Told() = default;

 private:
  friend void begin(const Command&, Told&);
  friend void end(const Command&, Told&);
  uint64_t last_ = 0;
  detail::Slot* slot_ = nullptr;  // the thread's, once it is known

  friend void tell_begin(const Command&, Told&);
};

// Notifies the readers. An exception leaves begin() at once, but leaves end() only after all were notified.
void tell_begin(const Command& command, Told& told);
inline void begin(const Command& command, Told& told) {
  // In this order: a reader that counts here and wants begins is seen to want them.
  told.last_ = detail::last_number.load(std::memory_order_acquire);
  if (is_begin_told(command.kind)) tell_begin(command, told);
}
void end(const Command& command, Told& told);
// Of a command that has no end.
inline void note(const Command& command) {
  Told told;
  begin(command, told);
}

}  // namespace tape

}  // namespace loom::runtime
