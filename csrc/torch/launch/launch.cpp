#include "torch/launch/launch.h"

#include <ATen/Parallel.h>
#include <c10/util/Exception.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <cstdio>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <tuple>

#include "runtime/ipc/shared_memory.h"
#include "torch/core/device.h"
#include "torch/core/python_line.h"
#include "torch/dispatch/device_assert.h"
#include "torch/dispatch/device_error.h"
#include "torch/launch/blocking_streams.h"
#include "torch/launch/interrupt.h"
#include "torch/launch/launch_note.h"
#include "util/clock.h"

namespace loom::glue {

namespace {

// Numbers of CUDA's runtime library.
constexpr int kSuccess = 0, kInvalidValue = 1, kInvalidConfiguration = 9, kInvalidDeviceFunction = 98,
              kInvalidHandle = 400, kCooperativeTooLarge = 720;

// What cudaMalloc() has taken: where it begins, and its bytes.
struct Allocations {
  std::mutex mutex;
  std::map<uintptr_t, size_t> bytes;
};
Allocations& allocations() {
  static auto* instance = new Allocations;
  return *instance;
}

std::atomic<size_t> allowed_shared_bytes{kUsualSharedBytes};

int check_configuration(const loom_cuda_kernel& kernel, int device) {
  const auto &grid = kernel.grid, &block = kernel.block;
  const uint64_t num_threads = uint64_t{block[0]} * block[1] * block[2];
  const bool has_blocks = grid[0] != 0 && grid[1] != 0 && grid[2] != 0;
  constexpr unsigned kMostX = 0x7FFFFFFF, kMostYZ = 65535, kMostDepth = 64;
  if (!has_blocks || num_threads == 0 || num_threads > cuda_cpp::kMaxThreads || block[2] > kMostDepth ||
      grid[0] > kMostX || grid[1] > kMostYZ || grid[2] > kMostYZ) {
    return kInvalidConfiguration;
  }
  if (kernel.shared_bytes > std::min(max_shared_bytes(device), allowed_shared_bytes.load()))
    return kInvalidValue;
  constexpr uint64_t kMostCooperative = 1024;
  if (kernel.is_cooperative != 0 && uint64_t{grid[0]} * grid[1] * grid[2] > kMostCooperative) {
    return kCooperativeTooLarge;
  }
  return kSuccess;
}

std::string configuration_text(const loom_cuda_kernel& kernel) {
  const auto triple = [](const unsigned (&xyz)[3]) {
    return "(" + std::to_string(xyz[0]) + ", " + std::to_string(xyz[1]) + ", " + std::to_string(xyz[2]) + ")";
  };
  return std::string(kernel.name) + ": grid " + triple(kernel.grid) + ", block " + triple(kernel.block) +
         ", " + std::to_string(kernel.shared_bytes) + " bytes of dynamic shared memory" +
         (kernel.shared_bytes > kUsualSharedBytes
              ? " (of more than 49152, cudaFuncSetAttribute() must be told, by "
                "cudaFuncAttributeMaxDynamicSharedMemorySize)"
              : "");
}

// Calls `use` with each place in the arguments that holds an address of a device.
template <typename F>
void for_device_words(const loom_cuda_kernel& kernel, runtime::Runtime& runtime, F&& use) {
  for (int i = 0; i < kernel.num_arguments; ++i) {
    const loom_cuda_argument& argument = kernel.arguments[i];
    auto* const bytes = static_cast<char*>(argument.value);
    for (size_t at = 0; at + sizeof(void*) <= argument.bytes; at += sizeof(void*)) {
      void* word;
      std::memcpy(&word, bytes + at, sizeof(word));
      if (word == nullptr) continue;
      const runtime::Place place = runtime.locate(word);
      if (place.kind == driver::AddressKind::kDevice) use(i, bytes + at, word, place);
    }
  }
}

void spread(int count, void (*body)(void*), void* context) {
  at::parallel_for(0, count, 1, [&](int64_t begin, int64_t end) {
    for (int64_t i = begin; i < end; ++i) body(context);
  });
}

// What a kernel has failed with is the device's affair from then on, or is raised once.
void report(const cuda_cpp::Failure& failure, const KernelLaunch& launch) {
  std::string what = launch.kernel_name;
  if (!launch.kernel_place.empty()) what += " (" + launch.kernel_place + ")";
  const std::string line = failure.at == nullptr ? "" : line_of(static_cast<const char*>(failure.at) + 1);
  note_device_error(failure.error, error_text(failure.error), what,
                    line.empty() ? failure.what : line + ": " + failure.what, launch.line);
}

void run_launch(const KernelLaunch& launch) {
  if (has_asserted.load(std::memory_order_relaxed)) return;  // nothing runs any more
  const RunningKernel running;
  const int num_threads = launch.watch != nullptr ? 1 : at::get_num_threads();
  cuda_cpp::Failure failure = cuda_cpp::run_grid(launch, num_threads, &spread);
  std::fflush(stdout);  // what it has printed
  if (launch.watch != nullptr) {
    if (std::string wrong = launch.watch->settle(); !wrong.empty() && failure.error == 0)
      failure = {cuda_cpp::kLaunchFailure, std::move(wrong)};
    for (kernel_checks::Piece piece : launch.watch->pieces(launch.ranges)) {
      const runtime::Place place = devices().locate(reinterpret_cast<const void*>(piece.begin));
      piece.begin = reinterpret_cast<uintptr_t>(place.device_address);
      launch.accesses->push_back(piece);
    }
  }
  if (failure.error != 0) report(failure, launch);
}

// Whether what it uses is known once it has run. Blocks that run at the same time are not watched.
bool can_watch(const loom_cuda_kernel& kernel) {
  const uint64_t num_blocks = uint64_t{kernel.grid[0]} * kernel.grid[1] * kernel.grid[2];
  return kernel.is_checked == LOOM_CUDA_CHECKS_RACES && (kernel.is_cooperative == 0 || num_blocks == 1) &&
         are_grids_watched.load(std::memory_order_relaxed);
}

std::atomic<LaunchListener> launch_listener{nullptr};

void submit(std::unique_ptr<KernelLaunch> launch, runtime::StreamRef stream) {
  runtime::Runtime& runtime = devices();
  const bool is_described = translated([] { return runtime::is_kernel_described(); });
  // Each allocation once, as bytes that the kernel reads and writes.
  c10::SmallVector<runtime::Operand, 8> operands;
  c10::SmallVector<int64_t, 16> sizes;
  static constexpr int64_t kOne = 1;
  sizes.reserve(64);
  const bool is_fenced = runtime.is_fenced();
  const LaunchListener listener = launch_listener.load();
  if (is_described || is_fenced || launch->is_checked != 0 || listener != nullptr) {
    for_device_words(*launch, runtime, [&](int number, char* at, void* word, const runtime::Place& place) {
      const KernelRange range = allocation_around(reinterpret_cast<uintptr_t>(place.device_address));
      const bool is_new = range.end != 0 &&
                          std::none_of(launch->ranges.begin(), launch->ranges.end(),
                                       [&](const KernelRange& known) { return known.begin == range.begin; });
      if (is_new) {
        launch->ranges.push_back({range.begin, range.end, "argument " + std::to_string(number + 1)});
        if (sizes.size() < sizes.capacity()) {
          sizes.push_back(static_cast<int64_t>(range.end - range.begin));
          operands.push_back(
              {reinterpret_cast<const void*>(range.begin), &sizes.back(), &kOne, 1, 1, -1, true});
        }
      }
      if (is_fenced) std::memcpy(at, &place.engine_address, sizeof(void*));
    });
  }
  if (listener != nullptr) {
    const auto &grid = launch->grid, &block = launch->block;
    LaunchNote note{stream.device,
                    launch->kernel_name,
                    launch->kernel_path,
                    {grid[0], grid[1], grid[2]},
                    {block[0], block[1], block[2]},
                    launch->shared_bytes,
                    launch->is_checked != 0,
                    {}};
    for (const KernelRange& range : launch->ranges)
      note.sizes.push_back(static_cast<int64_t>(range.end - range.begin));
    listener(note);
  }
  if (is_fenced) {
    // Kernels know memory by the addresses where they reach it.
    for (KernelRange& range : launch->ranges) {
      const auto first =
          reinterpret_cast<uintptr_t>(runtime.engine_address(reinterpret_cast<void*>(range.begin)));
      range.end = first + (range.end - range.begin);
      range.begin = first;
    }
  }
  const bool is_watched =
      can_watch(*launch) && runtime.device(stream.device).runs_kernels() && !runtime::is_captured(stream);
  const std::optional<WatchedIssue> issue =
      is_watched ? std::optional<WatchedIssue>(std::in_place) : std::nullopt;
  if (is_watched) {
    launch->watch = std::make_unique<BlockWatch>();
    launch->accesses = issue->accesses();
  }
  if (!translated([&] { return runtime::runs_in_place(stream); })) launch->line = python_line();
  const int64_t grid[3] = {launch->grid[0], launch->grid[1], launch->grid[2]};
  const int64_t block[3] = {launch->block[0], launch->block[1], launch->block[2]};
  runtime::Attribute attributes[2] = {};
  attributes[0] = {"grid", runtime::Attribute::Kind::kIntegers, 3, {.integers = grid}, 0};
  attributes[1] = {"block", runtime::Attribute::Kind::kIntegers, 3, {.integers = block}, 0};
  const runtime::OpRecord& op = runtime::intern_op(launch->kernel_name);
  driver::Kernel kernel{
      op.full_name, [](void* work, driver::Stream) { run_launch(*static_cast<const KernelLaunch*>(work)); },
      [](void* work) { delete static_cast<KernelLaunch*>(work); }, launch.release()};
  if (!runtime.device(stream.device).runs_kernels()) kernel.run = [](void*, driver::Stream) {};
  const runtime::KernelRecord record{&op, operands, attributes};
  // What a watched launch has used is known once it has run.
  const auto submit = is_watched ? &runtime::submit_and_wait : &runtime::submit;
  translated([&] { submit(stream, kernel, record, operands); });
}

}  // namespace

KernelLaunch::KernelLaunch(const loom_cuda_kernel& given)
    : loom_cuda_kernel(given),
      kernel_name(given.name),
      kernel_path(given.place == nullptr ? "" : given.place),
      kernel_place(kernel_path.substr(kernel_path.rfind('/') + 1)) {}

void set_launch_listener(LaunchListener listener) { launch_listener.store(listener); }

KernelRange allocation_around(uintptr_t address) {
  return allocation_around(devices().locate(reinterpret_cast<void*>(address)));
}

KernelRange allocation_around(const runtime::Place& place) {
  if (place.kind != driver::AddressKind::kDevice) return {};
  auto [begin, bytes] = place.device->allocator->block_around(place.device_address);
  if (bytes == 0) std::tie(begin, bytes) = runtime::shared::received_around(place.device_address);
  if (bytes != 0) return {begin, begin + bytes, {}};
  Allocations& known = allocations();
  const std::lock_guard<std::mutex> lock(known.mutex);
  auto after = known.bytes.upper_bound(reinterpret_cast<uintptr_t>(place.device_address));
  if (after == known.bytes.begin()) return {};
  --after;
  const bool is_inside = reinterpret_cast<uintptr_t>(place.device_address) < after->first + after->second;
  return is_inside ? KernelRange{after->first, after->first + after->second, {}} : KernelRange{};
}

void note_allocation(void* address, size_t bytes) {
  Allocations& known = allocations();
  const std::lock_guard<std::mutex> lock(known.mutex);
  known.bytes[reinterpret_cast<uintptr_t>(address)] = bytes;
}

bool forget_allocation(void* address) {
  Allocations& known = allocations();
  const std::lock_guard<std::mutex> lock(known.mutex);
  return known.bytes.erase(reinterpret_cast<uintptr_t>(address)) != 0;
}

runtime::StreamRef stream_of(const void* handle) {
  // cudaStreamLegacy and cudaStreamPerThread.
  if (reinterpret_cast<uintptr_t>(handle) <= 2) {
    devices();
    return {runtime::current_device(), 0};
  }
  const auto [device, id] = devices().find_stream(handle);
  return {device, id};
}

c10::Stream torch_stream(runtime::StreamRef stream) {
  const c10::Device device(device_type(), static_cast<c10::DeviceIndex>(stream.device));
  return c10::Stream(c10::Stream::UNSAFE, device, stream.id);
}

void* handle_of(runtime::StreamRef stream) {
  return stream.id == 0 ? nullptr : translated([&] { return devices().stream(stream.device, stream.id); });
}

void allow_shared_bytes(size_t bytes) {
  size_t known = allowed_shared_bytes.load();
  while (known < bytes && !allowed_shared_bytes.compare_exchange_weak(known, bytes)) {
  }
}

size_t max_shared_bytes(int device) {
  constexpr int64_t kWhereNotKnown = int64_t{227} << 10;
  const int64_t known = devices().device(device).chip().sizes.shared_memory_per_block_optin_bytes;
  return static_cast<size_t>(known != 0 ? known : kWhereNotKnown);
}

}  // namespace loom::glue

// --- what code that was CUDA C++ calls ---

using loom::cuda_cpp::Runner;

int loom_cuda_launch(const loom_cuda_kernel* given) {
  using namespace loom::glue;
  auto launch = std::make_unique<KernelLaunch>(*given);
  launch->name = launch->kernel_name.c_str();
  TORCH_CHECK(given->abi == LOOM_CUDA_ABI, given->name, " was compiled against version ", given->abi,
              " of torch-loom's CUDA headers, and this is version ", LOOM_CUDA_ABI,
              ": build the extension anew");
  if (Runner* const runner = Runner::active()) {
    runner->fail(loom::cuda_cpp::kLaunchFailure,
                 launch->kernel_name + " (" + launch->kernel_place +
                     ") is launched by a kernel, which is not supported, in " + runner->position());
  }
  const loom::runtime::StreamRef stream = stream_of(given->stream);
  if (stream.device < 0) return set_last_error(kInvalidHandle);
  if (const int error = check_configuration(*given, stream.device); error != kSuccess) {
    const std::string what =
        std::string("CUDA error: ") + error_text(error) + "\n" + configuration_text(*given);
    return refuse_launch(error, std::make_exception_ptr(c10::AcceleratorError(
                                    {__func__, __FILE__, static_cast<uint32_t>(__LINE__)}, error, what)));
  }
  const LaunchScope own;
  try {
    order_streams(stream);
    submit(std::move(launch), stream);
  } catch (const c10::AcceleratorError& error) {
    // A device that has failed: the program asks by cudaGetLastError(), or meets it where it waits.
    return set_last_error(error.get_error_code(), std::current_exception());
  }
  return kSuccess;
}

void loom_cuda_run(const loom_cuda_kernel* given) {
  loom::glue::KernelLaunch launch(*given);
  launch.release = nullptr;  // it stays the caller's
  launch.name = launch.kernel_name.c_str();
  loom::glue::WatchedIssue::Accesses* const asked = loom::glue::WatchedIssue::of_running_launch();
  if (given->is_checked != 0 || asked != nullptr) {
    loom::glue::for_device_words(
        launch, loom::glue::devices(), [&](int number, char*, void* word, const auto& place) {
          const auto range = loom::glue::allocation_around(reinterpret_cast<uintptr_t>(place.device_address));
          const auto first = reinterpret_cast<uintptr_t>(
              loom::glue::devices().engine_address(reinterpret_cast<void*>(range.begin)));
          if (range.end != 0)
            launch.ranges.push_back(
                {first, first + (range.end - range.begin), "argument " + std::to_string(number + 1)});
        });
  }
  if (asked != nullptr) {
    launch.watch = std::make_unique<loom::glue::BlockWatch>();
    if (!loom::glue::can_watch(launch)) launch.watch->give_up();
    launch.accesses = std::make_shared<loom::glue::WatchedIssue::Accesses>();
  }
  loom::glue::run_launch(launch);
  if (asked != nullptr) asked->insert(asked->end(), launch.accesses->begin(), launch.accesses->end());
}

int loom_cuda_next_block(loom_cuda_runner* runner) { return static_cast<Runner*>(runner)->next_block(); }
void loom_cuda_begin_waiting(loom_cuda_runner* runner, unsigned thread) {
  static_cast<Runner*>(runner)->begin_waiting(thread);
}
void loom_cuda_end_thread(loom_cuda_runner* runner, unsigned thread) {
  static_cast<Runner*>(runner)->end_thread(thread);
}
int loom_cuda_barrier(loom_cuda_runner* runner, unsigned thread, int kind, int value) {
  return static_cast<Runner*>(runner)->barrier(thread, kind, value);
}
void loom_cuda_meet(loom_cuda_runner* runner, unsigned thread, unsigned mask, void* given,
                    void (*combine)(void* const* given, unsigned lanes)) {
  static_cast<Runner*>(runner)->meet(thread, mask, given, combine);
}
unsigned loom_cuda_active(loom_cuda_runner* runner, unsigned thread) {
  return static_cast<Runner*>(runner)->active_lanes(thread);
}
void loom_cuda_grid_barrier(loom_cuda_runner* runner) { static_cast<Runner*>(runner)->grid_barrier(); }
void loom_cuda_poll(loom_cuda_runner* runner) {
  loom_cuda_unwatched();
  static_cast<Runner*>(runner)->poll();
}
void loom_cuda_unwatched(void) {
  const Runner* const runner = Runner::active();
  if (runner == nullptr) return;
  const auto& launch = static_cast<const loom::glue::KernelLaunch&>(runner->grid_run().kernel);
  if (launch.watch != nullptr) launch.watch->give_up();
}
int loom_cuda_in_kernel(void) { return Runner::active() != nullptr; }

void loom_cuda_fail(int error, const char* what) {
  Runner* const runner = Runner::active();
  TORCH_CHECK(runner != nullptr, what, " outside of a kernel");
  runner->fail(error, what + (" in " + runner->position()));
}

void loom_cuda_assert_fail(const char* assertion, const char* file, unsigned line,
                           const char* function) noexcept {
  Runner* const runner = Runner::active();
  if (runner == nullptr) __assert_fail(assertion, file, line, function);
  runner->fail(loom::cuda_cpp::kAssertTriggered, std::string(file) + ":" + std::to_string(line) + ": " +
                                                     function + ": " + runner->position() + ": Assertion `" +
                                                     assertion + "` failed.");
}

unsigned long long loom_cuda_clock(void) { return static_cast<unsigned long long>(loom::clock::host_ns()); }
