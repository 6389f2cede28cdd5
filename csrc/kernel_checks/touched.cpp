#include "kernel_checks/touched.h"

#include <algorithm>

namespace loom::kernel_checks {

namespace {

// Beyond this, runs are joined, and where that does not help, what lies between them counts as well.
constexpr size_t kMostRuns = size_t{1} << 18;

template <typename Run>
void join_neighbours(std::vector<Run>& runs) {
  std::sort(runs.begin(), runs.end(), [](const Run& a, const Run& b) { return a.begin < b.begin; });
  size_t last = 0;
  for (const Run& run : runs) {
    if (run.begin <= runs[last].end) {
      runs[last].end = std::max(runs[last].end, run.end);
    } else {
      runs[++last] = run;
    }
  }
  if (!runs.empty()) runs.resize(last + 1);
}

// Joins pieces of the same form at equal distances from one another.
void join_rows(std::vector<Piece>& pieces, size_t dim) {
  size_t last = 0;
  for (size_t i = 1; i < pieces.size(); ++i) {
    Piece& row = pieces[last];
    const Piece& next = pieces[i];
    const auto distance = static_cast<int64_t>(next.begin - row.begin);
    const bool is_alike = next.bytes == row.bytes &&
                          (dim == 0 || (next.counts[0] == row.counts[0] && next.steps[0] == row.steps[0]));
    if (is_alike && (row.counts[dim] == 1 || distance == row.steps[dim] * row.counts[dim])) {
      if (row.counts[dim]++ == 1) row.steps[dim] = distance;
    } else {
      pieces[++last] = next;
    }
  }
  if (!pieces.empty()) pieces.resize(last + 1);
}

}  // namespace

void TouchedMemory::add(const void* site, uintptr_t begin, uintptr_t end, bool is_written) {
  const auto [place, is_new] = open_.try_emplace(site, Open{{begin, end}, is_written});
  if (is_new) return;
  Open& open = place->second;
  if (is_written == open.is_written && begin >= open.run.begin && begin <= open.run.end) {
    open.run.end = std::max(open.run.end, end);
    return;
  }
  close(open);
  open = {{begin, end}, is_written};
}

void TouchedMemory::close(const Open& open) {
  std::vector<Run>& runs = runs_[open.is_written ? 1 : 0];
  runs.push_back(open.run);
  if (runs.size() < kMostRuns) return;
  join_neighbours(runs);
  if (runs.size() > kMostRuns / 2) runs = {{runs.front().begin, runs.back().end}};
}

std::vector<Piece> TouchedMemory::pieces(size_t most) {
  for (const auto& [site, open] : open_) close(open);
  open_.clear();
  std::vector<Piece> found;
  for (const bool is_written : {false, true}) {
    std::vector<Run>& runs = runs_[is_written ? 1 : 0];
    if (runs.empty()) continue;
    join_neighbours(runs);
    std::vector<Piece> own;
    for (const Run& run : runs) {
      own.push_back({run.begin, static_cast<int64_t>(run.end - run.begin), {1, 1}, {0, 0}, is_written});
    }
    join_rows(own, 0);
    join_rows(own, 1);
    if (own.size() > most) {
      const auto all = static_cast<int64_t>(runs.back().end - runs.front().begin);
      own = {{runs.front().begin, all, {1, 1}, {0, 0}, is_written}};
    }
    found.insert(found.end(), own.begin(), own.end());
  }
  return found;
}

}  // namespace loom::kernel_checks
