#pragma once

#include <string>

namespace loom::glue {

// "file:line" of the Python code that this thread runs, outside of PyTorch's files and torch.loom's where
// there is any, or
// "" where it runs none. Takes Python's lock for a moment.
std::string python_line();

}  // namespace loom::glue
