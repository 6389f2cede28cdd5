// Kernels of CUDA C++ on their way to a stream.
#pragma once

#include <c10/core/Stream.h>

#include <cstdint>
#include <exception>
#include <string>
#include <vector>

#include "cuda_cpp/runner.h"
#include "runtime/commands.h"
#include "torch/launch/block_watch.h"
#include "torch/launch/error_text.h"
#include "torch/launch/grid_watch.h"

namespace loom::glue {

// Memory that a kernel may access: an allocation that an argument points into.
struct KernelRange {
  uintptr_t begin = 0, end = 0;
  std::string name;  // "argument 2"
};

// A launch: the kernel, and what is known of its operands.
struct KernelLaunch : loom_cuda_kernel {
  explicit KernelLaunch(const loom_cuda_kernel& given);
  ~KernelLaunch() {
    if (release != nullptr) release(closure);
  }
  KernelLaunch(const KernelLaunch&) = delete;
  KernelLaunch& operator=(const KernelLaunch&) = delete;

  std::string kernel_name, kernel_path, kernel_place, line;  // path: with its folders; line: of Python
  std::vector<KernelRange> ranges;                           // in checked builds
  std::unique_ptr<BlockWatch> watch;                         // under the sanitizer
  std::shared_ptr<WatchedIssue::Accesses> accesses;          // where to say what it has used
};

// Where an allocation lies that holds an address: of PyTorch's allocator, of another process that sent it, or
// of cudaMalloc(). Its end is what was asked for. Empty where nothing is allocated.
KernelRange allocation_around(uintptr_t address);
KernelRange allocation_around(const runtime::Place& place);
// What cudaMalloc() returned, and what cudaFree() is given.
void note_allocation(void* address, size_t bytes);
bool forget_allocation(void* address);

// "file:line" of code whose call returns to `from`, as far as its library has that; empty otherwise. In
// functions of torch-loom's headers it is the line that calls them.
std::string line_of(const void* from);

// Whether memory is the state that a graph gives its kernels for PyTorch's generator.
bool is_captured_random(uintptr_t address, size_t bytes);

// The stream that a cudaStream_t names; a device of −1 when there is none. Null and CUDA's two handles for
// default streams are the current device's default stream.
runtime::StreamRef stream_of(const void* handle);
// The same as PyTorch's, for guards.
c10::Stream torch_stream(runtime::StreamRef stream);
// The handle of a stream.
void* handle_of(runtime::StreamRef stream);

// The error that cudaGetLastError() returns next in this thread. `cause`: what is thrown for it where the
// program checks it by PyTorch's means.
int set_last_error(int error, std::exception_ptr cause = nullptr);
// The same for a launch that was refused. A kernel of PyTorch's that this thread launches before the error
// was taken raises `cause`, as PyTorch's check behind its kernels does.
int refuse_launch(int error, std::exception_ptr cause);
// Around the launch of a kernel of the program's own, behind which nothing asks.
struct LaunchScope {
  LaunchScope();
  ~LaunchScope();
  LaunchScope(const LaunchScope&) = delete;
  LaunchScope& operator=(const LaunchScope&) = delete;
};
int take_last_error();
int peek_last_error();
// The cause of an error that was noted last, once.
std::exception_ptr take_error_cause(int error);

// Dynamic shared memory that a block may have at most, and without having asked for more.
size_t max_shared_bytes(int device);
constexpr size_t kUsualSharedBytes = size_t{48} << 10;
// A kernel has asked for more. Which one is not known where it is launched: from then on each may have it.
void allow_shared_bytes(size_t bytes);

}  // namespace loom::glue
