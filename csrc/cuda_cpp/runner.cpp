#include "cuda_cpp/runner.h"

#include <link.h>

#include <algorithm>
#include <array>
#include <cstdio>
#include <exception>
#include <memory>
#include <new>
#include <thread>
#include <utility>

#include "cuda_cpp/time_limit.h"
#include "util/thread_local.h"

namespace loom::cuda_cpp {

namespace {

LOOM_FAST_ACCESS constinit thread_local Runner* active_runner = nullptr;

void run_blocks(GridRun& grid);

std::string triple(const unsigned (&xyz)[3]) {
  return "(" + std::to_string(xyz[0]) + ", " + std::to_string(xyz[1]) + ", " + std::to_string(xyz[2]) + ")";
}

}  // namespace

// --- the grid ---

bool GridRun::claim(uint64_t& block) noexcept {
  if (has_failed()) return false;
  block = next_.fetch_add(1, std::memory_order_relaxed);
  return block < num_blocks_;
}

void GridRun::fail(uint64_t block, int error, std::string what, const void* at) {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (block >= failed_.load(std::memory_order_relaxed)) return;
  failure_ = {error, std::move(what), at};
  failed_.store(block, std::memory_order_relaxed);
  changed_.notify_all();
}

Failure GridRun::failure() const {
  const std::lock_guard<std::mutex> lock(mutex_);
  return failure_;
}

bool GridRun::wait_for_grid() {
  std::unique_lock<std::mutex> lock(mutex_);
  const uint64_t generation = generation_;
  if (++num_waiting_ == num_blocks_) {
    num_waiting_ = 0;
    ++generation_;
    changed_.notify_all();
  }
  changed_.wait(lock, [&] { return generation_ != generation || failure_.error != 0; });
  return failure_.error == 0;
}

void GridRun::add_thread() {
  constexpr size_t kMostAdded = 1024;
  const std::lock_guard<std::mutex> lock(mutex_);
  if (next_.load(std::memory_order_relaxed) >= num_blocks_ || added_.size() >= kMostAdded) return;
  added_.emplace_back([this] { run_blocks(*this); });
}

void GridRun::join_threads() {
  // Those that are added meanwhile, too.
  while (true) {
    std::vector<std::thread> threads;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      threads.swap(added_);
    }
    if (threads.empty()) return;
    for (std::thread& thread : threads) thread.join();
  }
}

void GridRun::begin_thread() {
  const std::lock_guard<std::mutex> lock(mutex_);
  threads_.push_back(pthread_self());
}

void GridRun::end_thread() {
  const std::lock_guard<std::mutex> lock(mutex_);
  std::erase_if(threads_, [](pthread_t each) { return pthread_equal(each, pthread_self()) != 0; });
}

void GridRun::stop() {
  const std::lock_guard<std::mutex> lock(mutex_);
  if (code_end_ == 0) {
    // Of the library that has the kernel.
    dl_iterate_phdr(
        [](dl_phdr_info* info, size_t, void* context) {
          auto& grid = *static_cast<GridRun*>(context);
          const auto code = reinterpret_cast<uintptr_t>(grid.kernel.run);
          for (int i = 0; i < info->dlpi_phnum; ++i) {
            const ElfW(Phdr) & segment = info->dlpi_phdr[i];
            const uintptr_t begin = info->dlpi_addr + segment.p_vaddr;
            if (segment.p_type != PT_LOAD || code < begin || code >= begin + segment.p_memsz) continue;
            grid.code_begin_ = begin;
            grid.code_end_ = begin + segment.p_memsz;
            return 1;
          }
          return 0;
        },
        this);
    is_stopped_.store(true, std::memory_order_release);
  }
  // They cannot end before the lock is given up.
  for (const pthread_t thread : threads_) ask_to_stop(thread);
}

// --- one block after the other ---

Runner* Runner::active() noexcept { return active_runner; }

void Runner::run(GridRun& grid) {
  const loom_cuda_kernel& kernel = grid.kernel;
  grid_ = &grid;
  std::copy(kernel.grid, kernel.grid + 3, this->grid);
  std::copy(kernel.block, kernel.block + 3, block);
  num_threads = block[0] * block[1] * block[2];
  active_runner = this;
  races_ = kernel.is_checked == LOOM_CUDA_CHECKS_RACES ? std::make_unique<SharedRaces>() : nullptr;
  handle_faults();
  prepare_shared();
  const StopsWhenAsked stops;
  grid.begin_thread();
  while (next_block()) {
    try {
      start(/*is_first=*/true);
      if (is_waiting_) schedule();
    } catch (const std::bad_alloc&) {
      grid.fail(block_number_, kMemoryAllocation,
                "the host has no memory left for the stacks of its threads, of " +
                    std::to_string(Fiber::kStackBytes >> 10) + " KiB each");
    }
    if (must_leave()) abandon();
    taken_.clear();
  }
  grid.end_thread();
  active_runner = nullptr;
}

bool Runner::next_block() noexcept {
  if (!grid_->claim(block_number_)) return false;
  const uint64_t row = block_number_ / grid[0];
  at[0] = static_cast<unsigned>(block_number_ % grid[0]);
  at[1] = static_cast<unsigned>(row % grid[1]);
  at[2] = static_cast<unsigned>(row / grid[1]);
  next_thread = 0;
  is_waiting_ = false;
  num_polls_ = 0;
  has_left_ = false;
  if (races_ != nullptr) races_->begin_block();
  return true;
}

void Runner::prepare_shared() {
  constexpr size_t kAlignment = 128;
  shared_bytes = grid_->kernel.shared_bytes;
  if (shared_memory_.size() < shared_bytes + kAlignment) shared_memory_.resize(shared_bytes + kAlignment);
  const auto first = reinterpret_cast<uintptr_t>(shared_memory_.data());
  shared = shared_memory_.data() + (kAlignment - first % kAlignment) % kAlignment;
}

// Runs on a fiber of its own until it ends or waits.
void Runner::start(bool is_first) {
  Fiber* const fiber = pool_.take();
  taken_.push_back(fiber);
  if (fiber->pointer == nullptr) fiber->restart(&Runner::entry);
  is_first_ = is_first;
  current_ = fiber;
  switch_stack(scheduler_, fiber->pointer);
}

void Runner::entry() {
  while (true) active_runner->run_fiber();
}

void Runner::run_fiber() {
  const loom_cuda_kernel& kernel = grid_->kernel;
  try {
    (is_first_ ? kernel.run : kernel.run_rest)(kernel.closure, this);
  } catch (const std::exception& error) {
    grid_->fail(block_number_, kLaunchFailure, std::string(error.what()) + ", thrown in " + position());
  } catch (...) {
    grid_->fail(block_number_, kLaunchFailure,
                "it threw something that is no std::exception, in " + position());
  }
  Fiber* const own = current_;
  current_ = nullptr;
  pool_.give_back(own);
  switch_stack(own->pointer, scheduler_);
}

void Runner::schedule() {
  while (!must_leave()) {
    if (Fiber* const fiber = ready_.pop()) {
      current_ = fiber;
      switch_stack(scheduler_, fiber->pointer);
    } else if (next_thread % kWarp == 0 && answer_active()) {
      continue;
    } else if (next_thread < num_threads) {
      start(/*is_first=*/false);
    } else if (answer_active()) {
      continue;
    } else if (num_alive_ == 0) {
      return;
    } else {
      grid_->fail(block_number_, kLaunchTimeout, waiting_threads());
    }
  }
}

// The thread on the current fiber waits: others go on, until one makes it ready.
void Runner::suspend() {
  Fiber* const own = current_;
  Fiber* const other = must_leave() ? nullptr : ready_.pop();
  current_ = other;
  if (other == own) return;  // it is what was waited for
  switch_stack(own->pointer, other != nullptr ? other->pointer : scheduler_);
}

// After a failure: nothing that waits goes on.
void Runner::abandon() {
  for (Fiber* const fiber : taken_) fiber->pointer = nullptr;
  ready_ = {};
  at_barrier_.fill(nullptr);
  // Those that have ended are idle already.
  pool_.take_back(taken_);
  current_ = nullptr;
}

void Runner::fail(int error, const std::string& what, const void* at) {
  grid_->fail(block_number_, error, what, at);
  // The stack is left as it is.
  StackPointer left = nullptr;
  switch_stack(left, scheduler_);
  std::terminate();  // not reached: nothing switches back
}

void Runner::fail_by_fault() {
  if (current_->has_guard_at(fault_address_)) {
    fail(kLaunchFailure,
         "more than the " + std::to_string(Fiber::kStackBytes >> 10) +
             " KiB of stack that a thread has, for its own variables and the functions that it calls, "
             "in " +
             position());
  }
  std::array<char, 32> shown{};
  std::snprintf(shown.data(), shown.size(), "0x%zx", static_cast<size_t>(fault_address_));
  fail(kIllegalAddress,
       position() + " accesses " + shown.data() +
           ", where there is no memory. `loom run --sanitize`, or TORCH_LOOM_CHECK_KERNELS=1, "
           "says in which line");
}

void Runner::fail_by_time() {
  // Code without checks may keep the index of its thread in a register.
  fail(
      kLaunchTimeout,
      (grid_->kernel.is_checked != 0 ? position() : "block " + triple(at)) + " " + kOverLimit +
          ". Blocks of a launch run one after another on each thread of the host, and so do the threads of a "
          "block: one that waits for a later one in a loop over memory waits for ever",
      reinterpret_cast<const void*>(std::exchange(stopped_at_, 0)));
}

std::string Runner::position() const {
  unsigned thread[3] = {};
  grid_->kernel.thread_index(thread);
  return "block " + triple(at) + ", thread " + triple(thread);
}

std::string Runner::thread_text(unsigned rank) const {
  return "thread " + triple({rank % block[0], rank / block[0] % block[1], rank / (block[0] * block[1])});
}

bool Runner::is_on_stack(uintptr_t address) const noexcept {
  return std::any_of(taken_.begin(), taken_.end(), [&](const Fiber* fiber) { return fiber->holds(address); });
}

// --- threads that wait ---

void Runner::begin_waiting(unsigned thread) {
  is_waiting_ = true;
  next_thread = thread + 1;
  num_alive_ = num_threads - thread;
  num_at_barrier_ = 0;
  count_ = any_ = 0;
  all_ = 1;
  for (unsigned w = 0; w * kWarp < num_threads; ++w) {
    Warp& warp = warps_[w];
    const unsigned lanes = std::min(kWarp, num_threads - w * kWarp);
    warp.ended = lanes == kWarp ? 0 : ~0U << lanes;
    warp.meetings.clear();
    warp.asking = 0;
  }
  for (unsigned ended = 0; ended < thread; ++ended) warps_[ended / kWarp].ended |= 1U << ended % kWarp;
}

void Runner::end_thread(unsigned thread) {
  --num_alive_;
  Warp& warp = warps_[thread / kWarp];
  warp.ended |= 1U << thread % kWarp;
  if (num_at_barrier_ != 0 && num_at_barrier_ == num_alive_) complete_barrier();
  if (!warp.meetings.empty()) settle(warp);
}

void Runner::complete_barrier() {
  if (races_ != nullptr) races_->pass_barrier();
  results_[LOOM_CUDA_SYNC] = 0;
  results_[LOOM_CUDA_COUNT] = count_;
  results_[LOOM_CUDA_AND] = all_;
  results_[LOOM_CUDA_OR] = any_;
  num_at_barrier_ = 0;
  count_ = any_ = 0;
  all_ = 1;
  for (unsigned i = 1; i <= num_threads; ++i) {
    if (Fiber* const fiber = std::exchange(at_barrier_[i % num_threads], nullptr)) ready_.push(fiber);
  }
}

int Runner::barrier(unsigned thread, int kind, int value) {
  count_ += value != 0;
  all_ = all_ != 0 && value != 0;
  any_ = any_ != 0 || value != 0;
  at_barrier_[thread] = current_;
  if (++num_at_barrier_ == num_alive_) complete_barrier();
  suspend();
  return results_[kind];
}

void Runner::meet(unsigned thread, unsigned mask, void* given, Combine combine) {
  Warp& warp = warps_[thread / kWarp];
  const unsigned lane = thread % kWarp, own = 1U << lane;
  if ((mask & own) == 0) {
    fail(kLaunchFailure, "a warp function whose mask leaves out the lane that calls it, in " + position());
  }
  Meeting* found = nullptr;
  for (Meeting& meeting : warp.meetings) {
    if (meeting.mask == mask && (meeting.arrived & own) == 0) found = &meeting;
  }
  if (found == nullptr) {
    found = &warp.meetings.emplace_back();
    found->mask = mask;
    found->arrived = 0;
    found->combine = combine;
  } else if (found->combine != combine) {
    fail(kLaunchFailure, "lanes of a warp call different warp functions with one mask, in " + position());
  }
  found->arrived |= own;
  found->given[lane] = given;
  if (((found->arrived | warp.ended) & mask) == mask) {
    found->fibers[lane] = nullptr;
    settle(warp);
    return;
  }
  found->fibers[lane] = current_;
  suspend();
}

// Ends the meetings to which all lanes have come.
void Runner::settle(Warp& warp) {
  for (size_t i = 0; i < warp.meetings.size();) {
    Meeting& meeting = warp.meetings[i];
    if (((meeting.arrived | warp.ended) & meeting.mask) != meeting.mask) {
      ++i;
      continue;
    }
    if (races_ != nullptr) races_->meet(static_cast<unsigned>(&warp - warps_.data()), meeting.arrived);
    meeting.combine(meeting.given.data(), meeting.arrived);
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((meeting.arrived >> lane & 1) != 0 && meeting.fibers[lane] != nullptr)
        ready_.push(meeting.fibers[lane]);
    }
    warp.meetings.erase(warp.meetings.begin() + static_cast<std::ptrdiff_t>(i));
  }
}

unsigned Runner::active_lanes(unsigned thread) {
  Warp& warp = warps_[thread / kWarp];
  warp.asking |= 1U << thread % kWarp;
  warp.asking_fibers[thread % kWarp] = current_;
  suspend();
  return warp.answer;
}

// Nothing else can run: the lanes of a warp that have asked are those that are there.
bool Runner::answer_active() {
  bool has_answered = false;
  for (unsigned w = 0; w * kWarp < next_thread; ++w) {
    Warp& warp = warps_[w];
    if (warp.asking == 0) continue;
    warp.answer = warp.asking;
    for (unsigned lane = 0; lane < kWarp; ++lane) {
      if ((warp.asking >> lane & 1) != 0) ready_.push(warp.asking_fibers[lane]);
    }
    warp.asking = 0;
    has_answered = true;
  }
  return has_answered;
}

void Runner::grid_barrier() {
  if (grid_->kernel.is_cooperative == 0) {
    fail(kLaunchFailure, "grid.sync() needs a cooperative launch (cudaLaunchCooperativeKernel)");
  }
  if (!grid_->wait_for_grid()) suspend();
}

void Runner::poll() {
  // A lock that another thread of the host will soon give up needs none.
  constexpr unsigned kFewPolls = 256;
  if (++num_polls_ % kFewPolls != 0) return;
  if (grid_->has_failed()) {
    has_left_ = true;
    suspend();
  }
  if (grid_->is_stopped()) fail_by_time();
  grid_->add_thread();
  std::this_thread::yield();
}

std::string Runner::waiting_threads() const {
  std::string text = "threads of block " + triple(at) + " wait for one another for ever: ";
  unsigned num_meeting = 0;
  for (unsigned w = 0; w * kWarp < num_threads; ++w) {
    for (const Meeting& meeting : warps_[w].meetings)
      num_meeting += static_cast<unsigned>(__builtin_popcount(meeting.arrived));
  }
  text += std::to_string(num_at_barrier_) + " of " + std::to_string(num_alive_) + " are at __syncthreads()";
  if (num_meeting != 0) text += ", " + std::to_string(num_meeting) + " at a function of their warp";
  return text;
}

// --- a launch ---

namespace {

Runner& own_runner() {
  thread_local std::unique_ptr<Runner> runner;
  if (runner == nullptr) runner = std::make_unique<Runner>();
  return *runner;
}

void run_blocks(GridRun& grid) { own_runner().run(grid); }

void run_cooperatively(GridRun& grid) {
  std::vector<std::thread> threads;
  for (uint64_t i = 0; i < grid.num_blocks(); ++i) {
    threads.emplace_back([&grid] { run_blocks(grid); });
  }
  for (std::thread& thread : threads) thread.join();
}

}  // namespace

Failure run_grid(const loom_cuda_kernel& kernel, int num_threads, Spread spread) {
  // Below this, waking other threads costs more than they save.
  constexpr uint64_t kFewThreads = 4096;
  GridRun grid(kernel);
  const TimedRun timed(grid);
  const uint64_t num_device_threads = grid.num_blocks() * kernel.block[0] * kernel.block[1] * kernel.block[2];
  if (kernel.is_cooperative != 0 && grid.num_blocks() > 1) {
    run_cooperatively(grid);
  } else if (num_threads <= 1 || grid.num_blocks() == 1 || num_device_threads < kFewThreads) {
    run_blocks(grid);
  } else {
    const int count =
        static_cast<int>(std::min<uint64_t>(static_cast<uint64_t>(num_threads), grid.num_blocks()));
    spread(count, [](void* context) { run_blocks(*static_cast<GridRun*>(context)); }, &grid);
  }
  grid.join_threads();
  return grid.failure();
}

}  // namespace loom::cuda_cpp
