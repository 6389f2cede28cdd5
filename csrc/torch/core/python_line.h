#pragma once

#include <string_view>

namespace loom::glue {

// "file:line" of the Python code that this thread runs, outside of the files of Python, PyTorch and
// torch.loom where there is any, or "" where it runs none. Lives as long as the process. Takes Python's lock
// for a moment.
std::string_view python_line();

}  // namespace loom::glue
