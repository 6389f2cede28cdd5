// Races between the programs of one launch. A GPU runs programs in any order and at the same time; only
// atomics order them. Here they run one after another, so that what they access is compared byte by byte.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <unordered_map>
#include <vector>

namespace loom::kernel_checks {

enum class AccessKind : int32_t { kRead, kWrite, kAtomic };

// An access of one program. `site`: what the caller names its place in the source by.
struct Access {
  int64_t program = 0;
  const void* site = nullptr;
  AccessKind kind = AccessKind::kRead;
};

// The accesses of one launch. For one thread, whose programs run one after another.
class LaunchRaces {
 public:
  LaunchRaces();
  ~LaunchRaces();
  LaunchRaces(const LaunchRaces&) = delete;
  LaunchRaces& operator=(const LaunchRaces&) = delete;

  // Notes an access to 1, 2, 4 or 8 bytes; `value`: what is written there. Returns true and fills in `other`
  // if another program's access to one of the bytes is not ordered with it: one of the two writes, they are
  // not both atomic, and what is written is not what is there already.
  bool find_race(const Access& access, uintptr_t address, uint32_t bytes, const void* value, Access* other);

  // A program acquires and releases a lock, or a counter, at an address: it is ordered behind the programs
  // that have done so before.
  void synchronize(int64_t program, uintptr_t address);

 private:
  struct Page;
  struct Mark {
    uint32_t program = 0;  // and one; 0: none
    uint32_t epoch = 0;
    uint32_t site = 0;
    bool is_atomic = false;
  };
  struct Cell {
    Mark write;
    std::array<Mark, 2> reads;  // of two programs, the latest first
  };
  // What a program knows: up to which epoch the accesses of each program are ordered before its own.
  using Clock = std::vector<uint32_t>;

  Cell* cells_at(uintptr_t address, uint32_t bytes, uint32_t& count);
  bool is_ordered(const Mark& mark) const;
  bool note(Cell& cell, const Mark& mark, AccessKind kind, bool changes, Access* other);
  void begin_program(int64_t program);
  uint32_t number_of(const void* site);
  bool report(const Mark& mark, AccessKind kind, Access* other) const;

  std::unordered_map<uintptr_t, std::unique_ptr<Page>> pages_;
  uintptr_t last_page_ = 0;
  Page* last_ = nullptr;
  std::vector<const void*> sites_;
  std::unordered_map<const void*, uint32_t> site_numbers_;
  std::unordered_map<uintptr_t, Clock> releases_;
  Clock clock_;
  uint32_t program_ = 0;  // the current one, and one
  uint32_t epoch_ = 1;
};

}  // namespace loom::kernel_checks
