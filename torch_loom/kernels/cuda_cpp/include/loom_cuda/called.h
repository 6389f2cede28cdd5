// Runs a kernel with arguments from Python, within a command of the device: torch.cuda._compile_kernel.
#pragma once

#include <stdexcept>
#include <string>

#include "loom_cuda/launch.h"

namespace loom_cuda {

// An argument has 16 bytes: its kind ('t', 'i', 'f') and its value; for a tensor the number of its address.
template <typename P>
static P argument(void* const* addresses, const char* slot) {
  int64_t whole;
  double real;
  memcpy(&whole, slot + 8, 8);
  memcpy(&real, slot + 8, 8);
  if constexpr (std::is_pointer_v<P>) {
    if (*slot != 't') throw std::invalid_argument("a pointer needs a tensor");
    return static_cast<P>(addresses[whole]);
  } else if constexpr (std::is_arithmetic_v<P>) {
    if (*slot == 't') throw std::invalid_argument("a tensor needs a pointer");
    return *slot == 'f' ? static_cast<P>(real) : static_cast<P>(whole);
  } else {
    throw std::invalid_argument("a parameter is neither pointer nor number");
  }
}

template <auto kernel, typename... P, size_t... I>
static void call(const char* name, void* const* addresses, const int64_t* numbers, const char* scalars,
                 void (*)(P...), std::index_sequence<I...>) {
  if (numbers[0] != static_cast<int64_t>(sizeof...(P))) {
    throw std::invalid_argument("it takes " + std::to_string(sizeof...(P)) + " arguments, but got " +
                                std::to_string(numbers[0]));
  }
  auto body = [](auto... given) { kernel(given...); };
  Closure<decltype(body), P...> closure{body, std::tuple<P...>(argument<P>(addresses, scalars + 16 * I)...)};
  loom_cuda_kernel described{};
  described.name = name;
  described.place = "";
  describe(described, closure);
  for (int i = 0; i < 3; ++i) {
    described.grid[i] = static_cast<unsigned>(numbers[1 + i]);
    described.block[i] = static_cast<unsigned>(numbers[4 + i]);
  }
  described.shared_bytes = static_cast<size_t>(numbers[7]);
  loom_cuda_run(&described);
}

// Returns null, or what was wrong with the arguments.
template <auto kernel, typename... P>
static const char* call(const char* name, void* const* addresses, const int64_t* numbers, const char* scalars,
                        void (*)(P...)) {
  static thread_local std::string error;
  try {
    call<kernel, P...>(name, addresses, numbers, scalars, static_cast<void (*)(P...)>(nullptr),
                       std::index_sequence_for<P...>());
  } catch (const std::invalid_argument& thrown) {
    return (error = thrown.what()).c_str();
  }
  return nullptr;
}

}  // namespace loom_cuda
