// Where a segment would lie on a card. Best fit breaks ties between free blocks of one size by address, so
// the order of addresses decides which block is split, and in the end how much memory a program reserves. The
// addresses that a driver returns are its own affair: this gives segments the order that they get on a GPU,
// whatever the driver.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace loom::runtime {

// A position in the device's address order; a block's is its segment's plus its offset.
using Position = uint64_t;

// Windows of 32 MiB of addresses are handed out from the top down, as a host's mmap does. A segment that fits
// goes to the lowest free addresses of the newest window with room; a larger one takes windows of its own.
// Checked against recordings of an H200 (benchmarks/allocator_replay.py): with plain ascending or descending
// addresses fewer of them come out the same.
class SegmentPlacement {
 public:
  Position place(size_t bytes);
  // Addresses for a segment that grows: they are never shared.
  Position place_growing();
  // The segment at `position` has gone.
  void remove(Position position, size_t bytes);

 private:
  static constexpr size_t kWindowBytes = size_t{32} << 20;
  static constexpr size_t kGrowingBytes = size_t{1} << 44;

  struct Hole {
    Position begin;
    size_t bytes;
  };
  struct Window {
    Position begin;
    std::vector<Hole> holes;  // ascending
  };

  Position next_ = Position{1} << 62;          // windows are below
  Position next_growing_ = Position{1} << 63;  // growing segments are below this and above `next_`
  std::vector<Window> windows_;                // oldest first
};

}  // namespace loom::runtime
