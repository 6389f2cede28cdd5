// Ranges and marks of a program, as torch.loom.nvtx has them.
#pragma once

#include <cstdint>
#include <string>

namespace loom::glue::nvtx {

// Opens a range in this thread; returns how many it lies in.
int64_t range_push(const std::string& name);
// Ends the innermost range; returns how many are left, or -2 if none was open.
int64_t range_pop();
// Opens a range that any thread may end; returns its id.
uint64_t range_start(const std::string& name);
// False: no such range is open.
bool range_end(uint64_t id);
void mark(const std::string& name);

}  // namespace loom::glue::nvtx
