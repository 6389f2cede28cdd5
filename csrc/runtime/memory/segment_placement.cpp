#include "runtime/memory/segment_placement.h"

#include <algorithm>

namespace loom::runtime {

Position SegmentPlacement::place(size_t bytes) {
  if (bytes > kWindowBytes) {
    next_ -= (bytes + kWindowBytes - 1) / kWindowBytes * kWindowBytes;
    return next_;
  }
  for (auto window = windows_.rbegin(); window != windows_.rend(); ++window) {
    const auto hole = std::find_if(window->holes.begin(), window->holes.end(),
                                   [&](const Hole& candidate) { return candidate.bytes >= bytes; });
    if (hole == window->holes.end()) continue;
    const Position position = hole->begin;
    hole->begin += bytes;
    hole->bytes -= bytes;
    if (hole->bytes == 0) window->holes.erase(hole);
    return position;
  }
  next_ -= kWindowBytes;
  Window window{next_, {}};
  if (bytes < kWindowBytes) window.holes.push_back({next_ + bytes, kWindowBytes - bytes});
  windows_.push_back(std::move(window));
  return next_;
}

Position SegmentPlacement::place_growing() {
  next_growing_ -= kGrowingBytes;
  return next_growing_;
}

void SegmentPlacement::remove(Position position, size_t bytes) {
  if (bytes > kWindowBytes) return;
  // Newest windows have the lowest addresses.
  const auto window = std::lower_bound(windows_.begin(), windows_.end(), position,
                                       [](const Window& each, Position value) { return each.begin > value; });
  if (window == windows_.end()) return;
  auto& holes = window->holes;
  auto hole = std::lower_bound(holes.begin(), holes.end(), position,
                               [](const Hole& each, Position value) { return each.begin < value; });
  hole = holes.insert(hole, {position, bytes});
  if (const auto next = hole + 1; next != holes.end() && hole->begin + hole->bytes == next->begin) {
    hole->bytes += next->bytes;
    holes.erase(next);
  }
  if (hole != holes.begin() && (hole - 1)->begin + (hole - 1)->bytes == hole->begin) {
    (hole - 1)->bytes += hole->bytes;
    hole = holes.erase(hole) - 1;
  }
  if (hole->bytes == kWindowBytes) windows_.erase(window);
}

}  // namespace loom::runtime
