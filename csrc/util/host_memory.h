// How much memory the host still has: its own, and what the cgroups of this process and a limit of the
// program's leave. Device memory that lies on the host is asked for here before it is touched, since the
// kernel of the operating system kills a process that has touched more than there is.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace loom::host_memory {

// Writes of less are not asked for one by one.
inline constexpr size_t kLargeBytes = size_t{1} << 20;
// Allocations of up to this are taken to be written soon.
inline constexpr size_t kWrittenSoonBytes = size_t{1} << 30;

// The most that this process may use of the host; 0: no limit but the host's.
void set_limit(int64_t bytes) noexcept;

// Whether so many more bytes can be touched. A reading is a few milliseconds old, or new where it decides.
bool has_room(size_t bytes) noexcept;
// The same for what was not touched yet of a range.
bool can_touch(const void* address, size_t bytes) noexcept;

// Touches a large range that is about to be written all over, unless its last page was: its pages in one call
// cost two thirds of a fault for each, and several threads touch it. Smaller ranges are left alone.
void touch(void* address, size_t bytes) noexcept;

// What is there and what limits it, for a message: "the host … has 24.00 GiB, of which 0.30 GiB are left
// (…)".
std::string describe();

}  // namespace loom::host_memory
