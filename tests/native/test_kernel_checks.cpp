// Races between programs of a launch, and memory that nothing has written.
#include <array>

#include "check.h"
#include "kernel_checks/races.h"
#include "kernel_checks/touched.h"
#include "kernel_checks/unwritten.h"

namespace loom::test {

using kernel_checks::Access;
using kernel_checks::AccessKind;
using kernel_checks::LaunchRaces;
using kernel_checks::UnwrittenMemory;

namespace {

// A launch over eight numbers, each access of which is made after it was looked at.
struct Numbers {
  alignas(4096) std::array<int32_t, 8> memory{};
  LaunchRaces races;
  Access other;
  const char site = 0;

  uintptr_t at(size_t index) const { return reinterpret_cast<uintptr_t>(&memory[index]); }
  bool reads(int64_t program, size_t index) {
    return races.find_race({program, &site, AccessKind::kRead}, at(index), 4, nullptr, &other);
  }
  bool writes(int64_t program, size_t index, int32_t value) {
    const bool found = races.find_race({program, &site, AccessKind::kWrite}, at(index), 4, &value, &other);
    memory[index] = value;
    return found;
  }
  bool adds(int64_t program, size_t index) {
    const bool found = races.find_race({program, &site, AccessKind::kAtomic}, at(index), 4, nullptr, &other);
    ++memory[index];
    return found;
  }
};

}  // namespace

TEST(programs_that_write_apart_do_not_race) {
  Numbers numbers;
  for (int64_t program = 0; program < 8; ++program) {
    CHECK(!numbers.reads(program, program));
    CHECK(!numbers.writes(program, program, 1));
    CHECK(!numbers.reads(program, program));
  }
}

TEST(two_writes_race_unless_the_value_is_the_same) {
  Numbers numbers;
  CHECK(!numbers.writes(0, 3, 5));
  CHECK(!numbers.writes(1, 3, 5));
  CHECK(numbers.writes(2, 3, 6));
  CHECK(numbers.other.program == 0 && numbers.other.kind == AccessKind::kWrite);
  CHECK(numbers.other.site == &numbers.site);
}

TEST(a_write_that_changes_nothing_races_with_a_later_one) {
  Numbers numbers;
  CHECK(!numbers.writes(0, 3, 0));
  CHECK(numbers.writes(1, 3, 1));
}

TEST(a_read_races_with_a_write_on_either_side) {
  Numbers numbers;
  CHECK(!numbers.writes(0, 1, 1));
  CHECK(numbers.reads(1, 1));
  CHECK(!numbers.reads(1, 2));
  CHECK(!numbers.reads(2, 2));
  CHECK(numbers.writes(2, 2, 1));
  CHECK(numbers.other.program == 1 && numbers.other.kind == AccessKind::kRead);
}

TEST(atomics_do_not_race_with_one_another) {
  Numbers numbers;
  CHECK(!numbers.adds(0, 1));
  CHECK(!numbers.adds(1, 1));
  CHECK(numbers.reads(2, 1));
  CHECK(numbers.other.kind == AccessKind::kAtomic);
}

TEST(a_lock_orders_programs) {
  Numbers numbers;
  for (int64_t program = 0; program < 4; ++program) {
    numbers.races.synchronize(program, numbers.at(0));
    CHECK(!numbers.reads(program, 1));
    CHECK(!numbers.writes(program, 1, static_cast<int32_t>(program) + 1));
    numbers.races.synchronize(program, numbers.at(0));
  }
  // Behind the release nothing is ordered.
  CHECK(!numbers.writes(4, 2, 1));
  numbers.races.synchronize(5, numbers.at(0));
  CHECK(!numbers.reads(5, 1));
  CHECK(numbers.writes(5, 2, 2));
}

TEST(narrow_accesses_share_no_bytes) {
  Numbers numbers;
  const auto write = [&](int64_t program, uintptr_t address, uint32_t bytes) {
    const std::array<char, 8> value{1, 1, 1, 1, 1, 1, 1, 1};
    return numbers.races.find_race({program, &numbers.site, AccessKind::kWrite}, address, bytes, value.data(),
                                   &numbers.other);
  };
  CHECK(!write(0, numbers.at(0), 4));
  CHECK(!write(1, numbers.at(1), 2));
  CHECK(!write(2, numbers.at(1) + 2, 1));
  CHECK(write(3, numbers.at(0), 8));
  CHECK(write(3, numbers.at(1) + 1, 1));
}

TEST(unwritten_memory_shrinks_where_it_is_written) {
  UnwrittenMemory memory;
  memory.add(1000, 2000);
  CHECK(memory.holds(1999, 2003) && !memory.holds(2000, 2004) && !memory.holds(996, 1000));
  memory.remove(1100, 1200);
  CHECK(memory.holds(1099, 1100) && !memory.holds(1100, 1200) && memory.holds(1100, 1201));
  memory.remove(900, 3000);
  CHECK(!memory.holds(0, 5000));
}

TEST(strided_writes_leave_what_is_between) {
  UnwrittenMemory memory;
  memory.add(0, 400);
  // The first three of each ten numbers, in any order of the dimensions.
  const std::array<int64_t, 2> sizes{3, 10}, strides{1, 10};
  memory.remove(0, sizes.data(), strides.data(), 2, 4);
  CHECK(!memory.holds(0, 12) && memory.holds(12, 16) && memory.holds(36, 40) && !memory.holds(40, 52));
  CHECK(memory.holds(396, 400));
}

TEST(what_a_launch_touches_becomes_few_pieces) {
  kernel_checks::TouchedMemory memory;
  int read = 0, write = 0;
  // Two groups of three rows of 8 bytes, and what is read of them in turns.
  for (const uintptr_t group : {1000, 5000}) {
    for (uintptr_t row = 0; row < 3; ++row) {
      for (uintptr_t at = group + row * 100; at < group + row * 100 + 8; at += 4) {
        memory.add(&read, at, at + 4, false);
        memory.add(&write, at + 50, at + 54, true);
      }
    }
  }
  const auto pieces = memory.pieces(4);
  CHECK(pieces.size() == 2);
  const auto is_as = [](const kernel_checks::Piece& piece, uintptr_t begin, bool is_written) {
    return piece.begin == begin && piece.bytes == 8 && piece.counts == std::array<int64_t, 2>{3, 2} &&
           piece.steps == std::array<int64_t, 2>{100, 4000} && piece.is_written == is_written;
  };
  CHECK(is_as(pieces[0], 1000, false) && is_as(pieces[1], 1050, true));
}

TEST(what_is_touched_here_and_there_becomes_all_between) {
  kernel_checks::TouchedMemory memory;
  int site = 0;
  for (uintptr_t at = 3; at < 40; ++at) memory.add(&site, at * at, at * at + 1, true);
  const auto pieces = memory.pieces(4);
  CHECK(pieces.size() == 1 && pieces[0].begin == 9 && pieces[0].bytes == 39 * 39 + 1 - 9);
  // Overlapping accesses in any order are one piece.
  kernel_checks::TouchedMemory other;
  for (const uintptr_t begin : {16, 0, 8, 4}) other.add(&site, begin, begin + 8, true);
  CHECK(other.pieces(4).size() == 1 && other.pieces(4)[0].bytes == 24);
}

}  // namespace loom::test
