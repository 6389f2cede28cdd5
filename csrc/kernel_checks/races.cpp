#include "kernel_checks/races.h"

#include <algorithm>
#include <cstring>

namespace loom::kernel_checks {

namespace {

constexpr uintptr_t kPageBytes = 4096;

}  // namespace

// A page's cells are as wide as the narrowest access that it has seen.
struct LaunchRaces::Page {
  uint32_t width;
  std::vector<Cell> cells;

  explicit Page(uint32_t width) : width(width), cells(kPageBytes / width) {}
  void split(uint32_t narrower) {
    std::vector<Cell> more(kPageBytes / narrower);
    for (size_t i = 0; i < more.size(); ++i) more[i] = cells[i * narrower / width];
    cells = std::move(more);
    width = narrower;
  }
};

LaunchRaces::LaunchRaces() = default;
LaunchRaces::~LaunchRaces() = default;

LaunchRaces::Cell* LaunchRaces::cells_at(uintptr_t address, uint32_t bytes, uint32_t& count) {
  const uintptr_t number = address / kPageBytes, offset = address % kPageBytes;
  // Where it begins at no multiple of its size, narrower cells hold it.
  uint32_t width = bytes;
  while (offset % width != 0) width /= 2;
  if (last_ == nullptr || number != last_page_) {
    std::unique_ptr<Page>& page = pages_[number];
    if (page == nullptr) page = std::make_unique<Page>(width);
    last_ = page.get();
    last_page_ = number;
  }
  if (last_->width > width) last_->split(width);
  count = std::max<uint32_t>(bytes / last_->width, 1);
  const uintptr_t first = offset / last_->width;
  count = static_cast<uint32_t>(std::min<uintptr_t>(count, last_->cells.size() - first));
  return &last_->cells[first];
}

uint32_t LaunchRaces::number_of(const void* site) {
  const auto [found, is_new] = site_numbers_.try_emplace(site, static_cast<uint32_t>(sites_.size()));
  if (is_new) sites_.push_back(site);
  return found->second;
}

void LaunchRaces::begin_program(int64_t program) {
  const auto number = static_cast<uint32_t>(program + 1);
  if (number == program_) return;
  program_ = number;
  epoch_ = 1;
  clock_.clear();
}

bool LaunchRaces::is_ordered(const Mark& mark) const {
  if (mark.program == 0 || mark.program == program_) return true;
  return mark.program < clock_.size() && clock_[mark.program] >= mark.epoch;
}

bool LaunchRaces::report(const Mark& mark, AccessKind kind, Access* other) const {
  *other = {static_cast<int64_t>(mark.program) - 1, sites_[mark.site],
            mark.is_atomic ? AccessKind::kAtomic : kind};
  return true;
}

bool LaunchRaces::note(Cell& cell, const Mark& mark, AccessKind kind, bool changes, Access* other) {
  const bool is_atomic = kind == AccessKind::kAtomic;
  if (!is_ordered(cell.write) && !(is_atomic && cell.write.is_atomic) &&
      (changes || kind == AccessKind::kRead))
    return report(cell.write, AccessKind::kWrite, other);
  if (kind == AccessKind::kRead) {
    if (cell.reads[0].program != mark.program) cell.reads[1] = cell.reads[0];
    cell.reads[0] = mark;
    return false;
  }
  if (changes) {
    for (const Mark& read : cell.reads) {
      if (!is_ordered(read)) return report(read, AccessKind::kRead, other);
    }
    cell.write = mark;
  }
  return false;
}

bool LaunchRaces::find_race(const Access& access, uintptr_t address, uint32_t bytes, const void* value,
                            Access* other) {
  begin_program(access.program);
  const Mark mark{program_, epoch_, number_of(access.site), access.kind == AccessKind::kAtomic};
  const bool changes =
      access.kind == AccessKind::kAtomic ||
      (access.kind == AccessKind::kWrite &&
       (value == nullptr || std::memcmp(reinterpret_cast<const void*>(address), value, bytes) != 0));
  // A value that is there already still counts as written where nothing has written yet: another program may
  // write another one.
  uint32_t count;
  Cell* const cells = cells_at(address, bytes, count);
  for (uint32_t i = 0; i < count; ++i) {
    Cell& cell = cells[i];
    const bool is_first = access.kind == AccessKind::kWrite && cell.write.program == 0;
    if (note(cell, mark, access.kind, changes, other)) return true;
    if (!changes && is_first) cell.write = mark;
  }
  return false;
}

void LaunchRaces::synchronize(int64_t program, uintptr_t address) {
  begin_program(program);
  Clock& released = releases_[address];
  const size_t size = std::max({clock_.size(), released.size(), static_cast<size_t>(program_) + 1});
  clock_.resize(size);
  released.resize(size);
  for (size_t i = 0; i < size; ++i) clock_[i] = std::max(clock_[i], released[i]);
  released = clock_;
  released[program_] = epoch_++;
}

}  // namespace loom::kernel_checks
