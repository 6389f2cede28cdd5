// Runs the blocks of a kernel's launch. A thread of the host has one runner, which runs one block at a time
// and all of the block's threads; these take turns where they wait for one another.
#pragma once

#include <pthread.h>

#include <array>
#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "cuda_cpp/faults.h"
#include "cuda_cpp/fiber.h"
#include "cuda_cpp/shared_races.h"
#include "loom_cuda/engine.h"

namespace loom::cuda_cpp {

constexpr unsigned kMaxThreads = 1024;
constexpr unsigned kWarp = 32;

// Numbers of CUDA's runtime library.
constexpr int kMemoryAllocation = 2, kIllegalAddress = 700, kLaunchTimeout = 702, kAssertTriggered = 710,
              kLaunchFailure = 719;

struct Failure {
  int error = 0;  // 0: none
  std::string what;
  const void* at = nullptr;  // the code where it was stopped
};

// What the runners of a launch share.
class GridRun {
 public:
  explicit GridRun(const loom_cuda_kernel& kernel) : kernel(kernel) {
    num_blocks_ = uint64_t{kernel.grid[0]} * kernel.grid[1] * kernel.grid[2];
  }
  uint64_t num_blocks() const noexcept { return num_blocks_; }
  // The number of the next block, in their order, so that a block may wait for those before it. False: there
  // is none, or the kernel has failed.
  bool claim(uint64_t& block) noexcept;
  bool has_failed() const noexcept { return failed_.load(std::memory_order_relaxed) != kNone; }
  // Whether a block need not end. Those before one that has failed do: the failure that counts is that of the
  // first block that has one, however the threads of the host ran.
  bool must_leave(uint64_t block) const noexcept {
    const uint64_t failed = failed_.load(std::memory_order_relaxed);
    return failed != kNone && (failed <= block || kernel.is_cooperative != 0);
  }
  void fail(uint64_t block, int error, std::string what, const void* at = nullptr);
  Failure failure() const;
  // Waits for all blocks; false: the kernel has failed meanwhile.
  bool wait_for_grid();
  // A block waits for another one, maybe for one that has not begun: lets a further thread of the host run
  // blocks.
  void add_thread();
  void join_threads();
  // Of the calling thread of the host, which runs blocks between the two.
  void begin_thread();
  void end_thread();
  // It has taken too long: asks each of these threads to stop where it is in the kernel's code.
  void stop();
  bool is_stopped() const noexcept { return is_stopped_.load(std::memory_order_acquire); }
  bool holds_code(uintptr_t address) const noexcept { return address >= code_begin_ && address < code_end_; }

  const loom_cuda_kernel& kernel;

 private:
  static constexpr uint64_t kNone = ~uint64_t{0};

  uint64_t num_blocks_;
  std::atomic<uint64_t> next_{0};
  std::atomic<uint64_t> failed_{kNone};
  mutable std::mutex mutex_;
  std::condition_variable changed_;
  Failure failure_;
  uint64_t num_waiting_ = 0, generation_ = 0;
  std::vector<std::thread> added_;
  std::vector<pthread_t> threads_;
  std::atomic<bool> is_stopped_{false};
  uintptr_t code_begin_ = 0, code_end_ = 0;  // known once it is stopped
};

class Runner : public loom_cuda_runner {
 public:
  // Of this thread; null unless a kernel runs in it.
  static Runner* active() noexcept;

  Runner() : loom_cuda_runner() {}
  // Runs blocks of the grid until there is none left.
  void run(GridRun& grid);

  // What a kernel calls (loom_cuda/engine.h).
  bool next_block() noexcept;
  void begin_waiting(unsigned thread);
  void end_thread(unsigned thread);
  int barrier(unsigned thread, int kind, int value);
  using Combine = void (*)(void* const* given, unsigned lanes);
  void meet(unsigned thread, unsigned mask, void* given, Combine combine);
  unsigned active_lanes(unsigned thread);
  void grid_barrier();
  void poll();
  [[noreturn]] void fail(int error, const std::string& what, const void* at = nullptr);
  // Of the thread that runs, to shared memory. Returns what it races with, or null.
  const SharedRaces::Access* note_shared(uintptr_t address, size_t bytes, SharedRaces::Access access) {
    return races_->find(access, address, bytes);
  }
  // The thread that runs has stopped at an address. Returns where its stack begins, which fail_by_fault() is
  // called on; 0 where none runs.
  uintptr_t begin_fault(uintptr_t address) noexcept {
    fault_address_ = address;
    return current_ != nullptr ? current_->top() : 0;
  }
  [[noreturn]] void fail_by_fault();
  // The thread is at `code` with its stack at `stack`, and has been asked to stop. Returns where its
  // stack begins, which fail_by_time() is called on; 0 where it must go on: it may hold a lock of the host's.
  uintptr_t begin_stop(uintptr_t code, uintptr_t stack) noexcept {
    const bool stops =
        grid_->is_stopped() && current_ != nullptr && current_->holds(stack) && grid_->holds_code(code);
    if (!stops) return 0;
    stopped_at_ = code;
    return current_->top();
  }
  [[noreturn]] void fail_by_time();

  GridRun& grid_run() const noexcept { return *grid_; }
  // "block (0, 0, 0), thread (1, 0, 0)"
  std::string position() const;
  // "thread (1, 0, 0)", by its rank in the block
  std::string thread_text(unsigned rank) const;
  bool is_on_stack(uintptr_t address) const noexcept;
  // Its dynamic shared memory.
  bool is_shared(uintptr_t address, size_t bytes) const noexcept {
    const auto first = reinterpret_cast<uintptr_t>(shared);
    return address >= first && address + bytes <= first + shared_bytes;
  }

 private:
  // Lanes that wait for one another.
  struct Meeting {
    unsigned mask, arrived;
    Combine combine;
    std::array<void*, kWarp> given;
    std::array<Fiber*, kWarp> fibers;
  };
  struct Warp {
    unsigned ended = 0;  // lanes, also those that there are not
    std::vector<Meeting> meetings;
    unsigned asking = 0, answer = 0;  // lanes in active_lanes(), and the last answer to them
    std::array<Fiber*, kWarp> asking_fibers{};
  };
  // Fibers, first come first served.
  struct Queue {
    Fiber *first = nullptr, *last = nullptr;
    void push(Fiber* fiber) {
      fiber->next = nullptr;
      (first == nullptr ? first : last->next) = fiber;
      last = fiber;
    }
    Fiber* pop() {
      Fiber* const fiber = first;
      if (fiber != nullptr) first = fiber->next;
      return fiber;
    }
  };

  bool must_leave() const noexcept { return has_left_ || grid_->must_leave(block_number_); }
  static void entry();
  void run_fiber();
  void start(bool is_first);
  void schedule();
  bool answer_active();
  void suspend();
  void complete_barrier();
  void settle(Warp& warp);
  void prepare_shared();
  void abandon();
  std::string waiting_threads() const;

  GridRun* grid_ = nullptr;
  uint64_t block_number_ = 0;
  std::unique_ptr<SharedRaces> races_;  // null unless the kernel is compiled for it
  SignalStack signal_stack_;
  FiberPool pool_;
  std::vector<Fiber*> taken_;  // in use, or in use in this block
  std::vector<char> shared_memory_;
  StackPointer scheduler_ = nullptr;
  Fiber* current_ = nullptr;
  uintptr_t fault_address_ = 0, stopped_at_ = 0;
  unsigned num_polls_ = 0;  // of this block
  bool is_first_ = false;
  bool has_left_ = false;    // the block waits for what will not come
  bool is_waiting_ = false;  // a thread of the block has waited
  unsigned num_alive_ = 0;
  // After a barrier, the first thread goes on last. Published programs (farthest point sampling, as Pointnet2
  // has it) let all threads read a word that the first one then writes, with no barrier between. The checks
  // of races find it.
  Queue ready_;
  std::array<Fiber*, kMaxThreads> at_barrier_{};  // by thread
  unsigned num_at_barrier_ = 0;
  int count_ = 0, all_ = 1, any_ = 0;  // of the barrier's values
  int results_[4] = {};
  std::array<Warp, kMaxThreads / kWarp> warps_;
};

// How work is spread over threads of the host: calls `body` up to `count` times, in any of them.
using Spread = void (*)(int count, void (*body)(void*), void* context);

// Runs a kernel, over up to `num_threads` threads of the host.
Failure run_grid(const loom_cuda_kernel& kernel, int num_threads, Spread spread);

}  // namespace loom::cuda_cpp
