#pragma once

#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace loom::glue {

// How the names of files begin, and whether those files are a library's: files that a program calls and did
// not write. The first prefix that fits decides; files that none fits are the program's.
using FilePrefixes = std::vector<std::pair<std::string, bool>>;
// Before the first op. Both under Python's lock.
void set_library_files(FilePrefixes prefixes);
bool is_library_file(std::string_view file);

// "file:line" of the Python code that this thread runs, outside of library files
// where there is any, or "" where it runs none. Lives as long as the process. Takes Python's lock
// for a moment.
std::string_view python_line();

}  // namespace loom::glue
