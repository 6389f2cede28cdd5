// Which bytes a launch reads and writes, in few pieces: what launches on different streams are compared by.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <unordered_map>
#include <vector>

namespace loom::kernel_checks {

// The bytes at begin + i * steps[0] + j * steps[1], for all i and j below counts[0] and counts[1].
struct Piece {
  uintptr_t begin = 0;
  int64_t bytes = 0;
  std::array<int64_t, 2> counts{1, 1}, steps{0, 0};
  bool is_written = false;
};

// For one tensor. For one thread.
class TouchedMemory {
 public:
  // `site`: a place in the source, whose accesses are neighbours in memory more often than not.
  void add(const void* site, uintptr_t begin, uintptr_t end, bool is_written);
  // What is read, and what is written. Either becomes one piece, from its first byte to its last, where it
  // would be more than `most`.
  std::vector<Piece> pieces(size_t most);

 private:
  struct Run {
    uintptr_t begin, end;
  };
  struct Open {
    Run run;
    bool is_written;
  };
  void close(const Open& open);

  std::unordered_map<const void*, Open> open_;
  std::array<std::vector<Run>, 2> runs_;  // read, written
};

}  // namespace loom::kernel_checks
