// Exceptions and warnings of Python that pass through C++. PyTorch's header for them costs seconds to
// compile, so what needs it stands here.
#pragma once

#include <exception>
#include <string>

namespace loom::glue {

// Whether a call of Python's raised it.
bool is_python_error(const std::exception& error);

// For a catch block around a query: the message of the exception in flight, if it only means that there is no
// answer. Rethrows failures that the query did not cause: no memory, and Python's exceptions that are no
// `Exception`, as KeyboardInterrupt.
std::string text_of_refusal();

// Warns the thread that calls, which may hold Python's lock. Throws where Python makes warnings errors.
void warn_python(const std::string& message);

}  // namespace loom::glue
