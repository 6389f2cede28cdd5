// Fused kernels that the engine lacks: ops of the namespace loom_fused, named as PyTorch's are, whose kernel
// for the engine is made of several of its own. On the device they are one command, unless the op table says
// that this takes a kernel which the chip lacks.
#pragma once

#include <ATen/core/Generator.h>
#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>
#include <type_traits>
#include <utility>

#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"
#include "torch/engine/engine.h"
#include "torch/ops/op.h"

namespace loom::glue {

// Defines an op by its schema. `parts` takes tensors of the engine or of the device meta and calls ATen's
// ops.
template <typename F>
void define_fused(const std::string& schema, F* parts) {
  // As all libraries here, it lives as long as the process.
  static auto* const ops =
      new torch::Library(torch::Library::FRAGMENT, "loom_fused", std::nullopt, __FILE__, __LINE__);
  ops->def(schema.c_str(), torch::dispatch(c10::DispatchKey::CompositeExplicitAutograd, parts));
  library(own_key(), "loom_fused")
      .impl(schema.substr(0, schema.find('(')).c_str(),
            torch::CppFunction::makeFromBoxedFunction<&run_boxed>());
}

template <typename F>
c10::TypedOperatorHandle<F> find_fused(const char* name, const char* overload = "") {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, overload).typed<F>();
}

// The device of the first of our tensors among the arguments of a kernel; else the current one.
template <typename... Arguments>
int device_of_call(const Arguments&... arguments) {
  int device = -1;
  const auto look = [&](const auto& argument) {
    if constexpr (std::is_same_v<std::decay_t<decltype(argument)>, at::Tensor>) {
      if (device < 0 && argument.defined() && is_loom(argument)) device = argument.device().index();
    }
  };
  (look(arguments), ...);
  return device < 0 ? runtime::current_device() : device;
}

// The device's kernel of an op of PyTorch that is made of `parts`.
template <auto parts>
struct Fused;
template <typename Return, typename... Arguments, Return (*parts)(Arguments...)>
struct Fused<parts> {
  static inline c10::OperatorName name{"", ""};
  static Return call(Arguments... arguments) {
    static const Op& op = Op::named(name.name.c_str(), name.overload_name.c_str());
    static const auto handle = op.handle.template typed<Return(Arguments...)>();
    if (!op.is_whole_on(device_of_call(arguments...))) return parts(std::forward<Arguments>(arguments)...);
    return handle.call(std::forward<Arguments>(arguments)...);
  }
};

// For an op's argument. Not inlined: GCC 12 takes the empty optional's contents for used.
[[gnu::noinline]] inline std::optional<at::Generator> default_generator() { return std::nullopt; }

// Gives an op, as "mm.dtype", a kernel made of `parts`. The signature is PyTorch's. `kernel` is what programs
// call: checks that end in Fused<parts>::call, where the parts are not all.
template <auto parts>
void implement_fused(const std::string& op, const std::string& signature,
                     decltype(parts) kernel = &Fused<parts>::call) {
  define_fused(op + signature, parts);
  const size_t dot = op.find('.');
  Fused<parts>::name = {"loom_fused::" + op.substr(0, dot), dot == op.npos ? "" : op.substr(dot + 1)};
  library(own_key()).impl(op.c_str(), kernel);
}

}  // namespace loom::glue
