// Which of PyTorch's device types the devices have, and its dispatch keys: chosen once, when the device is
// registered (registration.h), and constant afterwards. Before that they are the CPU's and must not be read:
// a static initialiser must neither register nor compare.
#pragma once

#include <c10/core/DeviceType.h>
#include <c10/core/DispatchKey.h>
#include <c10/core/DispatchKeySet.h>

namespace loom::glue {

namespace detail {

// Plain values: written before the first tensor of the device can exist.
struct ChosenType {
  c10::DeviceType type = c10::DeviceType::CPU;
  c10::BackendComponent backend = c10::BackendComponent::CPUBit;
  c10::DispatchKeySet keys;
};
inline constinit ChosenType chosen{};

inline c10::DispatchKey key_of(c10::DispatchKey functionality) {
  return c10::toRuntimePerBackendFunctionalityKey(functionality, chosen.backend);
}

}  // namespace detail

inline c10::DeviceType device_type() noexcept { return detail::chosen.type; }

// The keys of a dense tensor of the device.
inline c10::DispatchKeySet own_keys() noexcept { return detail::chosen.keys; }

// Where the kernels of the device are registered.
inline c10::DispatchKey own_key() { return detail::key_of(c10::DispatchKey::Dense); }
inline c10::DispatchKey sparse_key() { return detail::key_of(c10::DispatchKey::Sparse); }
inline c10::DispatchKey sparse_csr_key() { return detail::key_of(c10::DispatchKey::SparseCsr); }
inline c10::DispatchKey quantized_key() { return detail::key_of(c10::DispatchKey::Quantized); }
inline c10::DispatchKey nested_key() { return detail::key_of(c10::DispatchKey::NestedTensor); }
inline c10::DispatchKey autograd_key() { return detail::key_of(c10::DispatchKey::AutogradFunctionality); }
c10::DispatchKey autocast_key();

}  // namespace loom::glue
