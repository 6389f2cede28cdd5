// Ops that the device implements itself, and how they are registered.
#pragma once

#include <torch/library.h>

#include <string>
#include <vector>

namespace loom::glue {

// True for an op (without overload) that must never be borrowed: it makes, views or moves memory.
bool is_native_op(const std::string& name);

// Each registers its group's kernels and returns their names with overloads. See module.cpp.
void register_boxed(torch::Library& library, const std::vector<std::string>& taken);
std::vector<std::string> register_unboxed(torch::Library& library);

}  // namespace loom::glue
