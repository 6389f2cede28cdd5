// What commands take, kept under everything that decides it: an op, its operands' dtypes, sizes and strides,
// and those attributes that the cost model reads. A miss is for the caller to work out.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "runtime/tape.h"
#include "util/call_key.h"

namespace loom::runtime {

class CostCache {
 public:
  // `names`: of the attributes that decide costs.
  explicit CostCache(const std::vector<std::string>& names);

  // Of a kernel that has come to its end, on a chip.
  CallKey key_of(uint32_t chip, const Command& command) const noexcept;
  // Of a command that moves bytes; `kind` is the caller's number.
  static CallKey key_of(uint32_t chip, int kind, size_t bytes) noexcept;

  // Nanoseconds, or -1 where they are not known.
  int64_t find(const CallKey& key) const noexcept {
    for (size_t place = key.first & mask_;; place = (place + 1) & mask_) {
      const Entry& entry = entries_[place];
      if (entry.key == key) return entry.nanoseconds;
      if (entry.nanoseconds < 0) return -1;
    }
  }
  void insert(const CallKey& key, int64_t nanoseconds);
  size_t size() const noexcept { return size_; }
  // Whether an attribute of this name decides costs.
  bool decides(const char* name) const noexcept;

 private:
  struct Entry {
    CallKey key{};
    int64_t nanoseconds = -1;  // -1: there is none here
  };

  std::vector<std::string> names_;
  uint64_t first_letters_ = 0;  // of the names: bit letter mod 64
  std::vector<Entry> entries_;
  size_t mask_ = 0, size_ = 0;
};

}  // namespace loom::runtime
