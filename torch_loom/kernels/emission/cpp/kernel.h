// What a compiled kernel is called with, and how it reports what goes wrong.
#pragma once

#include <stdarg.h>
#include <stdio.h>

#include "functions.h"
#include "products.h"

namespace loom {

// The memory of the tensor that an argument is: [begin, end).
struct Memory {
  int64_t begin, end;
};
// The memory at an address that a kernel did not get as an argument, and how far from it the host finds it.
struct Found {
  int64_t begin, end, shift;
};

// A product of blocks as csrc/numerics/blocks.h has it.
struct Blocks {
  int32_t left, right, height, width, depth, threads;
  int64_t longest_chain;
};
static_assert(sizeof(Blocks) == 32);

// One program of a launch.
struct Program {
  const int64_t* numbers;  // the arguments, 64 bits each
  const Memory* memories;  // of the arguments that are addresses, in order
  int num_memories;
  int32_t id[3], count[3];
  char* blocks;                     // for blocks that do not fit into registers
  Found (*find)(int64_t address);  // the tensor at an address; empty where there is none
  mutable Found found;             // what it found last
  struct Watcher* watcher;          // null where accesses are not watched
  int64_t number;                   // of the program among all of the launch
  const char* (*ask)(void* run);    // why the launch has to end; null: it goes on
  void* run;
  // Multiplies as matrix instructions do, by these rules; null: as the host does.
  bool (*multiply)(const void* rules, const Blocks& blocks, float* out, const float* sum, const float* left,
                   const float* right);
  const void* rules;
  mutable uint64_t turns;  // of loops
};

template <int height, int width, int depth>
inline void product_by_rule(const Program& program, const Blocks& blocks, float* out, const float* sum,
                            const float* left, const float* right) {
  if (program.multiply == nullptr || !program.multiply(program.rules, blocks, out, sum, left, right))
    product<float, height, width, depth>(out, sum, left, right);
}

// A load or store of the source.
struct Site {
  const char *what, *place, *argument;
  int number;  // of the argument among those that are addresses; negative where it is not known
};

// The sanitizer, as csrc/torch/launch/grid_watch.h has it.
enum Access : int32_t { kRead, kWrite, kAtomic, kLock, kVolatileRead };
struct Watcher {
  const char* (*access)(Watcher* self, int64_t program, const Site* site, int64_t address, int64_t bytes,
                        int32_t kind, const void* value);
};

struct Failure {
  char text[1500];
};

__attribute__((noinline, cold, noreturn, format(printf, 2, 3))) inline void fail(char kind,
                                                                                 const char* format, ...) {
  Failure failure;
  failure.text[0] = kind;
  va_list arguments;
  va_start(arguments, format);
  vsnprintf(failure.text + 1, sizeof failure.text - 1, format, arguments);
  va_end(arguments);
  throw failure;
}

__attribute__((noinline, cold, noreturn)) inline void fail_access(const Program& program, const Site& site,
                                                                  int64_t address, int64_t bytes) {
  char argument[200] = " memory that is no tensor's";
  char where[200] = "";
  if (site.number >= 0) {
    const Memory memory = program.memories[site.number];
    if (address == 0 && memory.begin == memory.end) {
      snprintf(where, sizeof where, " which is null");
    } else if (address < memory.begin) {
      snprintf(where, sizeof where, " %lld bytes before the begin", (long long)(memory.begin - address));
    } else if (memory.end != 0) {
      snprintf(where, sizeof where, " %lld bytes after the end",
               (long long)(address + bytes > memory.end && address < memory.end ? 0 : address - memory.end));
    }
    snprintf(argument, sizeof argument, " of argument %s\x01%d\x02", site.argument, site.number);
  }
  fail('M', "%s: program (%d, %d, %d) of (%d, %d, %d) %s %lld bytes at 0x%llx,%s%s", site.place,
       program.id[0], program.id[1], program.id[2], program.count[0], program.count[1], program.count[2],
       site.what, (long long)bytes, (unsigned long long)address, where, argument);
}

__attribute__((noinline, cold)) inline void ask(const Program& program, const char* place) {
  if (program.ask == nullptr) return;
  const char* const reason = program.ask(program.run);
  if (reason != nullptr)
    fail('T', "%s: program (%d, %d, %d) of (%d, %d, %d) %s", place, program.id[0], program.id[1], program.id[2],
         program.count[0], program.count[1], program.count[2], reason);
}
// At each turn of a loop: whether the launch has to end is asked now and then.
inline void turn(const Program& program, const char* place) {
  if (__builtin_expect((++program.turns & 0x3fff) == 0, 0)) ask(program, place);
}

inline bool is_in(Memory memory, int64_t address, int64_t bytes) {
  return address >= memory.begin && address + bytes <= memory.end;
}

// Addresses of arguments are the host's; those that are read from memory are a device's.
__attribute__((noinline)) inline Found find(const Program& program, int64_t address) {
  for (int i = 0; i < program.num_memories; ++i) {
    if (is_in(program.memories[i], address, 1)) return {program.memories[i].begin, program.memories[i].end, 0};
  }
  return program.find == nullptr ? Found{0, 0, 0} : program.find(address);
}
inline Memory memory_at(const Program& program, int number, int64_t address) {
  if (number >= 0) return program.memories[number];
  if (address < program.found.begin || address >= program.found.end) program.found = find(program, address);
  return {program.found.begin, program.found.end};
}

// Returns where the host finds what lies at an address.
inline int64_t check(const Program& program, const Site& site, int64_t address, int64_t bytes) {
  if (__builtin_expect(!is_in(memory_at(program, site.number, address), address, bytes), 0))
    fail_access(program, site, address, bytes);
  return site.number >= 0 ? address : address + program.found.shift;
}

// Reports an access to the sanitizer, in kernels that are compiled for it.
inline void watch(const Program& program, const Site& site, int64_t address, int64_t bytes, Access kind,
                  const void* value) {
#ifdef LOOM_WATCHED
  if (program.watcher == nullptr) return;
  const char* const error =
      program.watcher->access(program.watcher, program.number, &site, address, bytes, kind, value);
  if (error != nullptr) fail('S', "%s", error);
#endif
}
// An offset that did not fit into its type, of an access that happens.
__attribute__((noinline, cold, noreturn)) inline void fail_wrapped(const Program& program,
                                                                   const char* place) {
  fail('S',
       "%s: program (%d, %d, %d) of (%d, %d, %d): an offset does not fit into its type and has wrapped around; "
       "compute it in 64 bits, as by .to(tl.int64)",
       place, program.id[0], program.id[1], program.id[2], program.count[0], program.count[1],
       program.count[2]);
}
inline void check_wrapped(const Program& program, const char* place, bool has_wrapped) {
  if (__builtin_expect(has_wrapped, 0)) fail_wrapped(program, place);
}
template <typename T>
inline bool sum_wraps(T a, T b) {
  T result;
  return __builtin_add_overflow(a, b, &result);
}
template <typename T>
inline bool difference_wraps(T a, T b) {
  T result;
  return __builtin_sub_overflow(a, b, &result);
}
template <typename T>
inline bool product_wraps(T a, T b) {
  T result;
  return __builtin_mul_overflow(a, b, &result);
}
template <typename T>
inline bool shift_wraps(T a, T b) {
  return b < 0 || b >= static_cast<T>(sizeof(T) * 8) || (a << b >> b) != a;
}
// Whether all of [low, high) is an argument's. An empty range is.
inline bool holds(const Program& program, const Site& site, int64_t low, int64_t high) {
  if (high <= low) return true;
  const Memory memory = memory_at(program, site.number, low);
  return low >= memory.begin && high <= memory.end && (site.number >= 0 || program.found.shift == 0);
}

template <typename T>
inline T read(int64_t address) {
  T value;
  memcpy(&value, reinterpret_cast<const void*>(address), sizeof value);
  return value;
}
template <typename T>
inline void write(int64_t address, T value) {
  memcpy(reinterpret_cast<void*>(address), &value, sizeof value);
}
template <typename T, Access kind = kRead>
inline T read_checked(const Program& program, const Site& site, int64_t address, bool has_wrapped = false) {
  check_wrapped(program, site.place, has_wrapped);
  address = check(program, site, address, sizeof(T));
  watch(program, site, address, sizeof(T), kind, nullptr);
  return read<T>(address);
}
template <typename T>
inline void write_checked(const Program& program, const Site& site, int64_t address, T value,
                          bool has_wrapped = false) {
  check_wrapped(program, site.place, has_wrapped);
  address = check(program, site, address, sizeof(T));
  watch(program, site, address, sizeof(T), kWrite, &value);
  write<T>(address, value);
}

// Changes a number in memory at once; returns what was there.
template <typename T, Access kind, typename Change>
inline T exchange(const Program& program, const Site& site, int64_t address, Change change,
                  bool has_wrapped = false) {
  check_wrapped(program, site.place, has_wrapped);
  address = check(program, site, address, sizeof(T));
  watch(program, site, address, sizeof(T), kind, nullptr);
  using Word = std::conditional_t<
      sizeof(T) == 8, uint64_t,
      std::conditional_t<sizeof(T) == 4, uint32_t, std::conditional_t<sizeof(T) == 2, uint16_t, uint8_t>>>;
  Word* const word = reinterpret_cast<Word*>(address);
  Word before = __atomic_load_n(word, __ATOMIC_SEQ_CST);
  while (true) {
    const T old = bits_as<T>(before);
    if (__atomic_compare_exchange_n(word, &before, bits_as<Word>(static_cast<T>(change(old))), false,
                                    __ATOMIC_SEQ_CST, __ATOMIC_SEQ_CST))
      return old;
  }
}

inline int64_t least(int64_t a, int64_t b) { return b < a ? b : a; }
inline int64_t most(int64_t a, int64_t b) { return a < b ? b : a; }
inline int64_t kept_in(int64_t value, int64_t low, int64_t high) { return most(low, least(value, high)); }

__attribute__((noinline, cold, noreturn)) inline void fail_index(const Program& program, const char* place,
                                                                 int64_t index, int64_t size) {
  fail('A', "%s: program (%d, %d, %d): tl.gather is given the index %lld, and its source has %lld elements there",
       place, program.id[0], program.id[1], program.id[2], (long long)index, (long long)size);
}
// An index of tl.gather, which has to be in its block.
inline int64_t index_in(const Program& program, const char* place, int64_t index, int64_t size) {
  if (__builtin_expect(static_cast<uint64_t>(index) >= static_cast<uint64_t>(size), 0))
    fail_index(program, place, index, size);
  return index;
}

template <typename T>
inline void swap_places(T*& a, T*& b) {
  T* const kept = a;
  a = b;
  b = kept;
}
template <typename T>
inline void copy_block(T* to, const T* from, int64_t count) {
  if (to != from) memmove(to, from, sizeof(T) * count);
}

}  // namespace loom
