#include "torch/launch/grid_launch.h"

#include <ATen/Parallel.h>
#include <c10/core/impl/TorchDispatchModeTLS.h>
#include <c10/util/SmallVector.h>

#include <cstdlib>
#include <mutex>
#include <optional>
#include <thread>
#include <utility>

#include "cuda_cpp/time_limit.h"
#include "runtime/blocking.h"
#include "torch/core/errors.h"
#include "torch/core/python_line.h"
#include "torch/dispatch/device_assert.h"
#include "torch/dispatch/device_error.h"
#include "torch/launch/grid_watch.h"
#include "torch/launch/launch.h"
#include "torch/loans/operand.h"
#include "torch/memory/lazy.h"
#include "torch/memory/worlds.h"
#include "util/clock.h"
#include "util/waiting.h"

namespace loom::glue {

namespace {

struct Memory {
  int64_t begin, end;
};

// The memory of the tensor at an address of a device, for kernels; empty where there is none. `shift`: how
// far from it the engine finds what lies there.
struct Found {
  int64_t begin, end, shift;
};
Found find_memory(int64_t address) {
  const void* const place = reinterpret_cast<const void*>(address);
  const runtime::Place found = runtime::locate(place);
  if (found.device == nullptr) return {0, 0, 0};
  const KernelRange known = allocation_around(found);
  if (known.end == 0) return {0, 0, 0};
  const auto first =
      address + static_cast<int64_t>(known.begin - reinterpret_cast<uintptr_t>(found.device_address));
  return {first, first + static_cast<int64_t>(known.end - known.begin),
          reinterpret_cast<int64_t>(found.engine_address) - address};
}

// Memory of a thread for the blocks of its programs, kept from launch to launch.
char* block_memory(size_t bytes) {
  struct Kept {
    void* memory = nullptr;
    size_t bytes = 0;
    ~Kept() { std::free(memory); }
  };
  static thread_local std::unique_ptr<Kept> instance;
  if (instance == nullptr) instance = std::make_unique<Kept>();
  Kept& kept = *instance;
  constexpr size_t kAlignment = 64;
  if (bytes > kept.bytes) {
    std::free(std::exchange(kept.memory, nullptr));
    kept.bytes = 0;
    const size_t rounded = (bytes + kAlignment - 1) / kAlignment * kAlignment;
    kept.memory = std::aligned_alloc(kAlignment, rounded);
    TORCH_CHECK_WITH(OutOfMemoryError, kept.memory != nullptr, "A kernel needs ", rounded,
                     " bytes of host memory for its blocks, which the host does not have");
    kept.bytes = rounded;
  }
  return static_cast<char*>(kept.memory);
}

// In front of the arguments stand the grid, the first program and the one behind the last, find_memory, then
// these: a GridWatcher or null, ask_to_end and the run that it is given, multiply_blocks or null and its
// rules.
constexpr size_t kWatcherPlace = 6, kRunPlace = 8;

using numerics::tensor_core::BlockRules;
thread_local std::shared_ptr<const BlockRules> block_rules;
// Those that were set last. Threads of a backward have them: PyTorch takes the dispatch mode along that set
// them.
std::atomic<std::shared_ptr<const BlockRules>> latest_block_rules;
std::shared_ptr<const BlockRules> rules_of_launch() {
  if (block_rules != nullptr || c10::impl::TorchDispatchModeTLS::stack_len() == 0) return block_rules;
  return latest_block_rules.load();
}
bool multiply_blocks(const void* rules, const numerics::tensor_core::Blocks& blocks, float* out,
                     const float* sum, const float* left, const float* right) {
  return static_cast<const BlockRules*>(rules)->multiply(blocks, out, sum, left, right);
}
// One run of a launch. Ctrl-C leaves it as Python's exception.
struct GridRun {
  int64_t begin_ns = clock::host_ns();
  // Ctrl-C has reached one thread: programs of the others need not end.
  std::atomic<bool> is_over{false};
};
const char* ask_to_end(void* of) {
  auto& run = *static_cast<GridRun*>(of);
  if (run.is_over.load(std::memory_order_relaxed)) return "was left, as the launch is over";
  {
    const runtime::Interruptible wait;
    check_wait();
  }
  const int64_t limit = cuda_cpp::time_limit_ns();
  if (limit == 0 || clock::host_ns() - run.begin_ns < limit) return nullptr;
  static const std::string text =
      std::string(cuda_cpp::kOverLimit) +
      ". Programs of a launch run one after another on each thread: one that waits for a later one waits for "
      "ever";
  return text.c_str();
}
// Below this, a second thread costs more than it saves.
constexpr int64_t kWorthwhileNs = 40'000;

struct GridLaunch {
  std::shared_ptr<GridKernel> kernel;
  std::string line;
  std::vector<int64_t> numbers;
  std::vector<Memory> memories;
  // From where the engine finds each memory to its address on the device.
  std::vector<int64_t> shifts;
  std::vector<std::string> shapes;
  int64_t num_programs;
  // Those of the thread that launched it; null: products are the host's.
  std::shared_ptr<const BlockRules> rules = rules_of_launch();
  // Of a launch that is watched: where to say what it has used.
  std::shared_ptr<WatchedIssue::Accesses> accesses;
  std::thread::id issuer = std::this_thread::get_id();

  // Returns what went wrong, or "".
  std::string run_some(GridRun& run, int64_t begin, int64_t end, GridWatcher* watcher = nullptr) const {
    c10::SmallVector<int64_t, 32> own(numbers.begin(), numbers.end());
    own[kWatcherPlace] = reinterpret_cast<int64_t>(watcher);
    own[kRunPlace] = reinterpret_cast<int64_t>(&run);
    own[3] = begin;
    own[4] = end;
    const void* const first = memories.data();
    const char* error = kernel->function(static_cast<void* const*>(const_cast<void*>(first)), own.data(),
                                         block_memory(kernel->block_bytes));
    return error == nullptr ? "" : error;
  }

  void run_watched() const {
    std::vector<int64_t> begins;
    for (const Memory& memory : memories) begins.push_back(memory.begin);
    LaunchWatcher watcher({numbers[0], numbers[1], numbers[2]}, std::move(begins), shapes);
    GridRun run;
    const std::string error = run_some(run, 0, num_programs, &watcher);
    if (accesses != nullptr) note_accesses(watcher);
    if (!error.empty()) report(error);
  }

  void note_accesses(LaunchWatcher& watcher) const {
    const auto touched = watcher.touched();
    for (size_t number = 0; number < touched.size(); ++number) {
      for (kernel_checks::Piece piece : touched[number]) {
        const runtime::Place place = runtime::locate(reinterpret_cast<const void*>(piece.begin));
        const int64_t shift = number < shifts.size() ? shifts[number]
                                                     : reinterpret_cast<int64_t>(place.device_address) -
                                                           static_cast<int64_t>(piece.begin);
        piece.begin += static_cast<uintptr_t>(shift);
        accesses->push_back(piece);
      }
    }
  }

  // The programs from `begin` on, by all threads. Of those that fail, the first is the one that is named,
  // however the threads ran: all before it have begun, and end.
  std::string run_spread(GridRun& run, int64_t begin) const {
    const int num_threads = at::get_num_threads();
    // Several shares a thread, so that uneven programs end together.
    const int64_t share = std::max<int64_t>(1, (num_programs - begin) / (num_threads * 8));
    std::mutex mutex;
    std::string error;
    int64_t failed = num_programs;
    std::atomic<int64_t> next{begin};
    at::parallel_for(0, num_threads, 1, [&](int64_t first, int64_t last) {
      for (int64_t thread = first; thread < last; ++thread) {
        while (true) {
          const int64_t own = next.fetch_add(share);
          if (own >= num_programs) break;
          std::string wrong;
          try {
            wrong = run_some(run, own, std::min(own + share, num_programs));
          } catch (...) {  // Ctrl-C
            run.is_over = true;
            next = num_programs;
            throw;
          }
          if (wrong.empty()) continue;
          next = num_programs;
          const std::lock_guard<std::mutex> lock(mutex);
          if (own > failed) continue;
          failed = own;
          error = std::move(wrong);
        }
      }
    });
    return error;
  }

  void run() const {
    if (kernel->is_watched && are_grids_watched.load(std::memory_order_relaxed)) return run_watched();
    const int64_t known_ns = kernel->program_ns.load(std::memory_order_relaxed);
    GridRun run;
    const int64_t before = run.begin_ns;
    std::string error;
    bool is_timed = known_ns == 0;
    int64_t done = 0;
    // The first program of the first launch says whether threads are worth it.
    if (known_ns == 0 && num_programs > 1) {
      error = run_some(run, 0, 1);
      done = 1;
      const int64_t took = elapsed_ns(before);
      kernel->program_ns.store(std::max<int64_t>(took, 1), std::memory_order_relaxed);
      is_timed = false;
    }
    const int64_t rest = num_programs - done;
    const int64_t program_ns = kernel->program_ns.load(std::memory_order_relaxed);
    if (error.empty() && rest > 0) {
      if (rest == 1 || program_ns * rest < kWorthwhileNs || at::get_num_threads() == 1) {
        const int64_t start = clock::host_ns();
        error = run_some(run, done, num_programs);
        if (error.empty())
          kernel->program_ns.store(std::max<int64_t>(elapsed_ns(start) / rest, 1), std::memory_order_relaxed);
      } else {
        error = run_spread(run, done);
      }
    }
    if (is_timed && error.empty())
      kernel->program_ns.store(std::max<int64_t>(elapsed_ns(before) / num_programs, 1),
                               std::memory_order_relaxed);
    if (!error.empty()) report(error);
  }

  static int64_t elapsed_ns(int64_t before) { return clock::host_ns() - before; }

  void report(std::string error) const {
    const char kind = error[0];
    error.erase(0, 1);
    // \x01number\x02 stands for the shape of an argument.
    const size_t begin = error.find('\x01'), end = error.find('\x02');
    if (begin != std::string::npos && end != std::string::npos) {
      const size_t number = std::stoul(error.substr(begin + 1, end - begin - 1));
      error.replace(begin, end - begin + 1, number < shapes.size() ? ", " + shapes[number] : "");
    }
    constexpr int32_t kLaunchTimeout = 702;  // CUDA's
    if (kind == 'T') {
      note_device_error(kLaunchTimeout, "the launch timed out and was terminated", kernel->name, error, line);
      return;
    }
    if (kind == 'S')
      raise_kernel_check(kernel->name + " at " + error + (line.empty() ? "" : "\n  launched at " + line));
    if (kind != 'M' && kind != 'A') {
      TORCH_CHECK(false, kernel->name, ": ", error, line.empty() ? "" : "\n  launched at " + line);
    }
    const Fault fault = kind == 'M' ? Fault::kIllegalAccess : Fault::kAssert;
    if (has_device_asserts) {
      note_device_assert(kernel->name.c_str(), error, line, fault);
      return;
    }
    raise_fault(kernel->name + " at " + error + (line.empty() ? "" : "\n  launched at " + line), fault);
  }
};

std::string listed(at::IntArrayRef numbers) {
  std::string text = "[";
  for (const int64_t number : numbers) text += (text.size() == 1 ? "" : ", ") + std::to_string(number);
  return text + "]";
}

std::string shape_of(const at::Tensor& tensor) {
  std::string text =
      std::string("a tensor of ") + c10::toString(tensor.scalar_type()) + " " + listed(tensor.sizes());
  // An expanded gradient has less memory than its shape says.
  return tensor.is_contiguous() ? text : text + " with strides " + listed(tensor.strides());
}

}  // namespace

void set_time_limit(double seconds) { cuda_cpp::set_time_limit_ns(static_cast<int64_t>(seconds * 1e9)); }

std::shared_ptr<const BlockRules> set_block_rules(std::shared_ptr<const BlockRules> rules) {
  latest_block_rules.store(rules);
  return std::exchange(block_rules, std::move(rules));
}

void submit_grid(std::shared_ptr<GridKernel> kernel, int device, const std::array<int64_t, 3>& grid,
                 std::vector<int64_t> numbers, const std::vector<int>& places,
                 std::vector<GridAddress> addresses) {
  check_device_assert();
  const char* const name = kernel->name.c_str();
  auto work = std::make_unique<GridLaunch>();
  const runtime::StreamRef stream = runtime::current_stream_of(device);
  c10::SmallVector<runtime::Operand, 8> operands, outputs;
  for (size_t i = 0; i < addresses.size(); ++i) {
    GridAddress& argument = addresses[i];
    if (!argument.tensor.defined()) {
      const Found whole = argument.address == 0 ? Found{0, 0, 0} : find_memory(argument.address);
      work->memories.push_back({whole.begin + whole.shift, whole.end + whole.shift});
      work->shifts.push_back(-whole.shift);
      work->shapes.push_back(argument.address == 0 ? "which is null"
                             : whole.end == 0      ? "an address that is no tensor's"
                                                   : std::to_string(whole.end - whole.begin) +
                                                         " bytes that are given by their address");
      numbers[static_cast<size_t>(places[i])] = argument.address + whole.shift;
      continue;
    }
    const at::Tensor& tensor = argument.tensor;
    TORCH_CHECK_VALUE(tensor.device() == c10::Device(device_type(), static_cast<c10::DeviceIndex>(device)),
                      name, ": Pointer argument (at ", places[i], ") cannot be accessed from ", device_name(),
                      ":", device, ": its tensor is on ", tensor.device(),
                      tensor.is_cpu() ? " (cpu tensor?)" : "", ". Move it with .to()");
    check_world(tensor, name);
    check_has_memory(tensor, name);
    c10::StorageImpl* const storage = tensor.storage().unsafeGetStorageImpl();
    const bool is_written = kernel->is_written[i];
    void* const data = device_data(storage, is_written);
    const auto first = reinterpret_cast<int64_t>(devices().engine_address(data));
    work->shifts.push_back(reinterpret_cast<int64_t>(data) - first);
    work->memories.push_back({first, first + static_cast<int64_t>(storage->nbytes())});
    work->shapes.push_back(shape_of(tensor));
    numbers[static_cast<size_t>(places[i])] =
        first + tensor.storage_offset() * static_cast<int64_t>(tensor.itemsize());
    operands.push_back(operand_of(tensor, is_written));
    if (is_written) outputs.push_back(operands.back());
  }
  // What the cost model is asked by.
  c10::SmallVector<int64_t, 12> launch{kernel->number, grid[0], grid[1], grid[2]};
  for (const int place : kernel->deciding) launch.push_back(numbers[static_cast<size_t>(place)]);
  runtime::Attribute asked{};
  asked.name = "launch";
  asked.kind = runtime::Attribute::Kind::kIntegers;
  asked.count = static_cast<uint32_t>(launch.size());
  asked.integers = launch.data();
  const std::array<int64_t, 3> block = {kernel->num_threads, 1, 1};
  const auto sizes_of = [](const char* what, const std::array<int64_t, 3>& sizes) {
    return runtime::Attribute{what, runtime::Attribute::Kind::kIntegers, 3, {.integers = sizes.data()}, 0};
  };
  const std::array<runtime::Attribute, 3> attributes = {asked, sizes_of("grid", grid),
                                                        sizes_of("block", block)};
  numbers.insert(numbers.begin(), {grid[0], grid[1], grid[2], 0, 0, reinterpret_cast<int64_t>(&find_memory),
                                   0, reinterpret_cast<int64_t>(&ask_to_end), 0,
                                   work->rules == nullptr ? 0 : reinterpret_cast<int64_t>(&multiply_blocks),
                                   reinterpret_cast<int64_t>(work->rules.get())});
  work->num_programs = grid[0] * grid[1] * grid[2];
  work->numbers = std::move(numbers);
  if (!translated([&] { return runtime::runs_in_place(stream); })) work->line = python_line();
  const runtime::OpRecord& op = runtime::intern_op(kernel->name);
  const bool is_run = devices().device(device).runs_kernels() && !runtime::is_captured(stream);
  const bool is_watched = is_run && kernel->is_watched && are_grids_watched.load(std::memory_order_relaxed);
  const std::optional<WatchedIssue> issue =
      is_watched ? std::optional<WatchedIssue>(std::in_place) : std::nullopt;
  if (is_watched) work->accesses = issue->accesses();
  work->kernel = std::move(kernel);
  driver::Kernel command{op.full_name,
                         [](void* work, driver::Stream) { static_cast<const GridLaunch*>(work)->run(); },
                         [](void* work) { delete static_cast<const GridLaunch*>(work); }, work.release()};
  if (!devices().device(device).runs_kernels()) command.run = [](void*, driver::Stream) {};
  const runtime::KernelRecord record{&op, operands, attributes};
  // What a watched launch has used is known once it has run.
  const auto submit = is_watched ? &runtime::submit_and_wait : &runtime::submit;
  translated([&] { submit(stream, command, record, outputs); });
}

}  // namespace loom::glue
