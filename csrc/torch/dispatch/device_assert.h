// Errors that the values of tensors cause. A kernel on a GPU cannot raise: it asserts, the host sees the
// assert at its next wait for the device, and from then on every call fails. With TORCH_LOOM_ASSERTS=device
// ops do the same.
#pragma once

#include <c10/util/Exception.h>

#include <atomic>
#include <string_view>

#include "torch/loans/lend.h"

namespace loom::glue {

// Whether such errors are asserts. Set once, before the first op runs.
extern bool has_device_asserts;
// Whether errors of the engine's kernels are looked at: where they are asserts, and under the name cuda,
// where an op that raises them itself gives them the type of an assert.
extern bool are_errors_examined;
void set_device_asserts(bool is_on);

// Whether only the values of the arguments explain the error of an engine's kernel: the same call on zeros or
// on ones runs. Runs the kernel; `arguments` are the engine's.
bool is_caused_by_values(const Op& op, c10::DispatchKeySet engine_keys, const torch::jit::Stack& arguments,
                         const c10::Error& error);

// For the handler of an error that values cause, where it is no assert: raises it with the type of one, and
// with `line`, unless that is empty. An IndexError is both.
[[noreturn]] void rethrow_as_assert(const c10::Error& error, const std::string& line = {});

// For the handler of an error of the engine's kernel. An error that values cause becomes an assert of the
// device, and what such a call returns replaces the arguments at the end of `stack`, with undefined contents.
// Other errors are rethrown. In launch mode blocking the assert is raised here.
void assert_or_rethrow(Op& op, torch::jit::Stack* stack, Lending& lending, const c10::Error& error);

// For an op after an assert: no kernel runs any more, since what it would read is undefined. The arguments at
// the end of `stack` are replaced by results with undefined contents, as they are queued on a GPU; where
// their shapes are not known without a run, the assert is raised.
void skip_or_raise(Op& op, torch::jit::Stack* stack, Lending& lending);

// What ended a device, as CUDA names it.
enum class Fault { kAssert, kIllegalAccess };

// The device has asserted: the next wait for it raises the error. `line`: of Python, may be empty. From any
// thread; the first one counts.
void note_device_assert(const char* op_name, const std::string& reason, std::string_view line,
                        Fault fault = Fault::kAssert);

// Throws the error of a kernel where it is no assert of the device: c10::AcceleratorError.
[[noreturn]] void raise_fault(const std::string& what, Fault fault);

// Throws c10::AcceleratorError where a device has asserted.
[[noreturn]] void raise_device_assert();
inline void check_device_assert() {
  if (has_asserted.load(std::memory_order_relaxed)) [[unlikely]]
    raise_device_assert();
}

}  // namespace loom::glue
