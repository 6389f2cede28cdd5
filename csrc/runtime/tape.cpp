#include "runtime/tape.h"

#include <linux/membarrier.h>
#include <sched.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#include <algorithm>
#include <exception>
#include <mutex>
#include <utility>
#include <vector>

#include "driver/error.h"
#include "runtime/blocking.h"
#include "util/thread_local.h"

namespace loom::runtime {

namespace {

constexpr const char* kCommandNames[] = {
    "kernel",
    "copy",
    "fill",
    "record_event",
    "wait_event",
    "allocate",
    "free",
    "record_stream",
    "synchronize_stream",
    "synchronize_event",
    "synchronize_device",
    "graph replay",
    "store_result",
    "query_stream",
    "query_event",
    "destroy_event",
    "create_event",
    "create_stream",
    "fallback",
};
static_assert(sizeof kCommandNames / sizeof *kCommandNames == kNumCommandKinds);

}  // namespace

const char* name_of(CommandKind kind) noexcept { return kCommandNames[static_cast<size_t>(kind)]; }

}  // namespace loom::runtime

namespace loom::runtime::tape {

std::atomic<uint64_t> detail::wanted{0};
std::atomic<CommandKinds> detail::demanded{0};
std::atomic<uint64_t> detail::last_number{0};
std::atomic<size_t> detail::num_readers{0};

// A thread's mark: its state is odd while it calls readers. Slots are reused and never freed.
struct detail::Slot {
  std::atomic<uint64_t> state{0};
  std::atomic<bool> is_detaching{false};  // this thread's reader waits in detach()
  std::atomic<bool> is_taken{true};
  std::atomic<pid_t> process{0};
  Slot* next = nullptr;
};

namespace {

using detail::Slot;

struct Attached {
  const std::shared_ptr<TapeReader> reader;
  std::atomic<bool> is_detached{false};
};

// A reader in a list, with all that a notification needs, so that nothing is looked up.
struct Entry {
  TapeReader* reader;
  uint64_t number;
  CommandKinds begins, ends;
  std::shared_ptr<Attached> attached;
  bool is_detached() const { return attached->is_detached.load(std::memory_order_relaxed); }
};

// The readers at one moment; never changed.
using Readers = std::vector<Entry>;

// All of this is leaked: readers are detached while static objects are destroyed as well.
std::mutex& mutex = *new std::mutex;  // of attach() and detach()
std::atomic<const Readers*> current{new Readers};
std::vector<const Readers*>& retired = *new std::vector<const Readers*>;  // some thread may be reading them
std::atomic<Slot*> slots{nullptr};

// Null until the thread reports its first command, and when it ends.
LOOM_FAST_ACCESS constinit thread_local Slot* own = nullptr;

struct SlotOwner {
  ~SlotOwner() {
    if (Slot* slot = std::exchange(own, nullptr)) slot->is_taken.store(false, std::memory_order_release);
  }
};

Slot* take_slot() {
  for (Slot* slot = slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    bool is_taken = false;
    if (!slot->is_taken.load(std::memory_order_relaxed) &&
        slot->is_taken.compare_exchange_strong(is_taken, true, std::memory_order_acquire)) {
      return slot;
    }
  }
  auto* slot = new Slot;
  slot->next = slots.load(std::memory_order_relaxed);
  while (!slots.compare_exchange_weak(slot->next, slot, std::memory_order_release)) {
  }
  return slot;
}

[[gnu::noinline]] Slot& make_own() {
  // A thread that issues commands while its own objects are destroyed keeps its slot for ever.
  static thread_local SlotOwner owner;
  (void)&owner;
  own = take_slot();
  own->process.store(getpid(), std::memory_order_relaxed);
  return *own;
}

// Determined before the first reader is attached. A thread that still sees false uses the fence, which is
// also correct.
std::atomic<bool> has_barrier_of_all{false};

void prepare_barrier() {
  static const bool is_there =
      syscall(SYS_membarrier, MEMBARRIER_CMD_REGISTER_PRIVATE_EXPEDITED, 0, 0) == 0 &&
      syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0) == 0;
  has_barrier_of_all.store(is_there, std::memory_order_relaxed);
}

// From now on a thread that starts reading finds the present readers; all others have marked their slots.
void pass_barrier() {
  std::atomic_thread_fence(std::memory_order_seq_cst);
  if (has_barrier_of_all.load(std::memory_order_relaxed))
    syscall(SYS_membarrier, MEMBARRIER_CMD_PRIVATE_EXPEDITED, 0, 0);
}

Slot& own_slot() { return own != nullptr ? *own : make_own(); }

bool is_telling(const Slot& slot) { return slot.state.load(std::memory_order_relaxed) % 2 != 0; }

// While it lives, this thread may use the readers that it finds in `current`. Commands that a reader issues
// are reported too; the slot is already marked then.
class Reading {
 public:
  explicit Reading(Slot& slot) : slot_(slot), before_(slot.state.load(std::memory_order_relaxed)) {
    if (before_ % 2 != 0) [[unlikely]] {
      return;
    }
    slot_.state.store(before_ + 1, std::memory_order_relaxed);
    // In one order with detach(), which changes `current` and then looks at the slots. Where the system can
    // have every thread pass a barrier, detach() asks for that, and nothing is needed here.
    if (has_barrier_of_all.load(std::memory_order_relaxed)) [[likely]] {
      std::atomic_signal_fence(std::memory_order_seq_cst);
    } else {
      std::atomic_thread_fence(std::memory_order_seq_cst);
    }
  }
  ~Reading() {
    if (before_ % 2 == 0) [[likely]] {
      slot_.state.store(before_ + 2, std::memory_order_release);
    }
  }
  Reading(const Reading&) = delete;
  Reading& operator=(const Reading&) = delete;

  static const Readers& readers() { return *current.load(std::memory_order_acquire); }

 private:
  Slot& slot_;
  const uint64_t before_;
};

// This thread is in a reader and waits until others have left theirs. Threads that wait the same way skip it.
class Detaching {
 public:
  explicit Detaching(Slot& slot) : slot_(slot), was_(slot.is_detaching.exchange(true)) {}
  ~Detaching() { slot_.is_detaching.store(was_); }
  Detaching(const Detaching&) = delete;
  Detaching& operator=(const Detaching&) = delete;

 private:
  Slot& slot_;
  const bool was_;
};

// Returns when no other thread of this process uses readers that it found before the call. A thread
// in a reader skips those that wait here as it does. A reader may run Python: that takes as long as it takes.
void wait_for_others(bool in_reader) {
  pass_barrier();
  const pid_t process = getpid();
  for (Slot* slot = slots.load(std::memory_order_acquire); slot != nullptr; slot = slot->next) {
    if (slot == own || slot->process.load(std::memory_order_relaxed) != process) continue;
    const uint64_t state = slot->state.load(std::memory_order_acquire);
    if (state % 2 == 0) continue;
    for (int turn = 0; slot->state.load(std::memory_order_acquire) == state; ++turn) {
      if (in_reader && slot->is_detaching.load()) break;
      constexpr timespec kPause{0, 50'000};
      turn < 64 ? static_cast<void>(sched_yield()) : static_cast<void>(nanosleep(&kPause, nullptr));
    }
  }
}

auto find(const Readers& readers, const TapeReader* reader) {
  return std::find_if(readers.begin(), readers.end(),
                      [&](const Entry& entry) { return entry.reader == reader; });
}

// With the mutex held. The previous list is retired: a thread may still be calling its readers.
void publish(const Readers* readers) {
  uint64_t wanted = 0;
  CommandKinds demanded = 0;
  for (const Entry& entry : *readers) {
    wanted |= uint64_t{entry.ends} << 32 | entry.begins;
    demanded |= (entry.ends | entry.begins) & ~entry.reader->undemanded();
  }
  retired.push_back(current.exchange(readers, std::memory_order_seq_cst));
  detail::num_readers.store(readers->size(), std::memory_order_relaxed);
  detail::demanded.store(demanded, std::memory_order_relaxed);
  detail::wanted.store(wanted, std::memory_order_release);
}

constexpr bool has(CommandKinds kinds, CommandKind kind) {
  return (kinds >> static_cast<int>(kind) & 1) != 0;
}

}  // namespace

void attach(const std::shared_ptr<TapeReader>& reader) {
  const std::lock_guard<std::mutex> lock(mutex);
  prepare_barrier();
  const Readers& before = Reading::readers();
  if (find(before, reader.get()) != before.end()) {
    throw InvalidArgument("the reader is attached to the tape already");
  }
  auto after = std::make_unique<Readers>(before);
  const uint64_t number = detail::last_number.load(std::memory_order_relaxed) + 1;
  after->push_back({reader.get(), number, reader->begins(), reader->ends(),
                    std::shared_ptr<Attached>(new Attached{reader})});
  publish(after.release());
  detail::last_number.store(number, std::memory_order_release);
}

void detach(const std::shared_ptr<TapeReader>& reader) {
  std::vector<const Readers*> unused;
  const bool in_reader = own != nullptr && is_telling(*own);
  {
    const std::lock_guard<std::mutex> lock(mutex);
    const Readers& before = Reading::readers();
    const auto found = find(before, reader.get());
    if (found == before.end()) throw InvalidArgument("the reader is not attached to the tape");
    found->attached->is_detached.store(true, std::memory_order_relaxed);
    auto after = std::make_unique<Readers>(before);
    after->erase(after->begin() + (found - before.begin()));
    publish(after.release());
    if (!in_reader) unused.swap(retired);
  }
  if (in_reader) {
    // This thread itself uses the lists still: they go with the next detach().
    const Detaching detaching(*own);
    call_blocking([] { wait_for_others(/*in_reader=*/true); });
    return;
  }
  call_blocking([] { wait_for_others(/*in_reader=*/false); });
  for (const Readers* readers : unused) delete readers;
}

void tell_begin(const Command& command, Told& told) {
  Slot& slot = own_slot();
  told.slot_ = &slot;
  told.last_ = 0;
  const Reading reading(slot);
  for (const Entry& entry : Reading::readers()) {
    if (has(entry.begins, command.kind) && !entry.is_detached()) entry.reader->begin(command);
    told.last_ = entry.number;
  }
}

void end(const Command& command, Told& told) {
  const Reading reading(told.slot_ != nullptr ? *told.slot_ : own_slot());
  std::exception_ptr failure;
  for (const Entry& entry : Reading::readers()) {
    if (entry.number > told.last_) break;
    if (!has(entry.ends, command.kind) || entry.is_detached()) continue;
    try {
      entry.reader->end(command);
    } catch (...) {
      if (failure == nullptr) failure = std::current_exception();
    }
  }
  if (failure != nullptr) std::rethrow_exception(failure);
}

}  // namespace loom::runtime::tape
