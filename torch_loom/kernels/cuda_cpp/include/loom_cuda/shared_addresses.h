// Programs keep addresses of shared memory in 32 bits. What is above them is found again by the megabyte that
// an address lies in.
#pragma once

#include <string.h>

#include "loom_cuda/engine.h"
#include "loom_cuda/threads.h"

namespace loom_cuda {

// Of each megabyte that the low bits can name, the high bits; 0: none has been converted.
LOOM_CUDA_OF_THREAD unsigned short high_bits[4096];
LOOM_CUDA_OF_THREAD bool has_high_bits;

static inline void note_high_bits(unsigned long long at) {
  const auto high = static_cast<unsigned short>(at >> 32);
  unsigned short& known = high_bits[(at & 0xFFFFFFFFU) >> 20];
  if (known != 0 && known != high)
    loom_cuda_fail(719, "two arrays of shared memory have one address of 32 bits");
  known = high;
  has_high_bits = true;
}
static inline size_t shared_address(const void* at) {
  const auto address = reinterpret_cast<unsigned long long>(at);
  note_high_bits(address);
  note_high_bits(address + (1U << 20));  // the array may reach into the next one
  return address & 0xFFFFFFFFU;
}
template <typename T>
static inline void* of_shared(T at) {
  const unsigned long long address =
      sizeof(T) == 4 ? static_cast<unsigned>(at) : static_cast<unsigned long long>(at);
  if (address >> 32 != 0) return reinterpret_cast<void*>(address);
  return reinterpret_cast<void*>(static_cast<unsigned long long>(high_bits[address >> 20]) << 32 | address);
}
template <typename T>
static inline void* of_shared(T* at) {
  return const_cast<void*>(static_cast<const volatile void*>(at));
}

// Before the blocks of a launch: its memory may lie elsewhere.
static inline void forget_shared_addresses() {
  if (!has_high_bits) return;
  memset(high_bits, 0, sizeof(high_bits));
  has_high_bits = false;
}

}  // namespace loom_cuda
