// The sanitizer of CUDA C++: what the blocks of a launch read and write of the devices' memory. Races between
// blocks, reads of memory that nothing has written, and what launches on different streams are compared by.
#pragma once

#include <array>
#include <cstdint>
#include <map>
#include <string>
#include <vector>

#include "cuda_cpp/runner.h"
#include "kernel_checks/races.h"
#include "kernel_checks/touched.h"

namespace loom::glue {

struct KernelRange;

enum class BlockAccess { kRead, kWrite, kAtomic, kVolatileRead };

// Watches one run of a launch, whose blocks run one after another in one thread of the host.
class BlockWatch {
 public:
  // An access to `memory`, before it happens. Returns what is wrong, or "".
  std::string look(const cuda_cpp::Runner& runner, const KernelRange& memory, uintptr_t address, size_t bytes,
                   BlockAccess how, const void* from);
  // All blocks have ended. Returns what was wrong with the last access.
  std::string settle();
  // Blocks run at the same time from now on, or access memory without saying so: nothing is looked for.
  void give_up() noexcept { has_given_up_ = true; }
  bool has_given_up() const noexcept { return has_given_up_; }
  // What the launch has read and written, by the addresses of the kernel; of what it was given all, where it
  // is not known.
  std::vector<kernel_checks::Piece> pieces(const std::vector<KernelRange>& given);

 private:
  // A write, which is looked at once it has happened: one of the value that is there already is no race.
  struct Write {
    kernel_checks::Access access;
    std::array<unsigned, 3> thread;
    uintptr_t address;
    uint32_t bytes;
    std::array<char, 8> before;
    std::string memory;
  };

  std::string find_race(const cuda_cpp::GridRun& grid, const Write& each, const void* value);

  kernel_checks::LaunchRaces races_;
  std::map<uintptr_t, kernel_checks::TouchedMemory> touched_;
  std::vector<Write> writes_;
  const cuda_cpp::GridRun* grid_ = nullptr;
  bool has_given_up_ = false;
};

}  // namespace loom::glue
