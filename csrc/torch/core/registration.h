// Making PyTorch know the device: once, when the extension is loaded, with the device type as a value.
// Nothing registers in static initialisers.
#pragma once

#include <ATen/core/boxing/KernelFunction.h>
#include <ATen/core/operator_name.h>
#include <c10/util/ArrayRef.h>
#include <torch/library.h>

#include <string>

#include "torch/core/device_type.h"

namespace loom::glue {

// What one subject (the guard, an allocator, the kernels of one file) registers for device_type().
using Registration = void (*)();

// Chooses the device type and runs the registrations in their order. `name` is "cuda" for CUDA's own type,
// else the name that the type for backends outside of PyTorch's tree gets. Throws ValueError when another
// backend has that type, RuntimeError at a second call, and what a registration throws: then kernels that
// have been registered are taken away, and `put_back` restores what they had replaced.
void register_device(const std::string& name, c10::ArrayRef<Registration> registrations,
                     Registration put_back);

// Where kernels are registered under a key; lives as long as the process, since destroying a library takes
// its kernels away.
torch::Library& library(c10::DispatchKey key, const char* name_space = "aten");

// A kernel of an op whose name is known in parts: a library would parse it out of text, a quarter of the time
// that the registration takes.
void implement(const c10::OperatorName& op, c10::DispatchKey key, c10::KernelFunction kernel);

// What runs under a key where an op has no kernel for it: PyTorch works out the entry of every op.
void fall_back(c10::DispatchKey key, c10::KernelFunction kernel);

// Registers kernels that only tensors of a device reach, when one is first used: PyTorch takes microseconds
// for each kernel, and `import torch` would pay for thousands. What the program has registered by then stays.
void at_first_use(Registration registration);
// Goes on where an earlier call threw.
void register_what_waits();

}  // namespace loom::glue
