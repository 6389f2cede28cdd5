// Fused kernels that the engine lacks: ops of the namespace loom_fused, named as PyTorch's are, whose kernel
// for the engine is made of several of its own. On the device they are one command.
#pragma once

#include <ATen/core/dispatch/Dispatcher.h>
#include <torch/library.h>

#include <string>

#include "torch/core/registration.h"
#include "torch/dispatch/boxed.h"

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
c10::TypedOperatorHandle<F> find_fused(const char* name) {
  return c10::Dispatcher::singleton().findSchemaOrThrow(name, "").typed<F>();
}

}  // namespace loom::glue
