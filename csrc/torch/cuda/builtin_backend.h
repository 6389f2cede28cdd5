// What a build of PyTorch for CUDA has behind CUDA's device type. Under the name cuda it gives way to ours,
// so that the rest finds what it finds in a build for the CPU: a device type without a backend.
#pragma once

namespace loom::glue {

// Takes PyTorch's own kernels for CUDA out of the dispatcher. Does nothing under another name, and in a build
// without CUDA. Runs before anything is registered for the device type.
//
// Kernels that are overridden one by one would not do: where we register none, the op would still run
// PyTorch's, and a kernel for all backends that PyTorch has would stay behind it.
void displace_builtin_backend();

// Puts back what displace_builtin_backend() took out, and what ours have replaced: where a registration
// failed.
void restore_builtin_backend();

// Has Kineto profile the host alone, if PyTorch's own backend was displaced: before its first profile it asks
// CUPTI, which asks the driver and prints that there is none.
void keep_kineto_on_host();

}  // namespace loom::glue
