// Files without a name that processes share, and locks on them, which the operating system takes away from a
// process that is killed.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <string_view>
#include <utility>

#include "driver/error.h"
#include "util/file_name.h"

namespace loom::runtime {

// A descriptor, closed at the end, and in every forked child: a lock of this process must not live on there.
class File {
 public:
  File() = default;
  explicit File(int descriptor);
  File(File&& other) noexcept : descriptor_(std::exchange(other.descriptor_, -1)) {}
  File& operator=(File&& other) noexcept {
    std::swap(descriptor_, other.descriptor_);
    return *this;
  }
  ~File();
  int descriptor() const noexcept { return descriptor_; }

 private:
  int descriptor_ = -1;
};

// Checks that received bytes are those that were sent: a damaged byte always changes it.
uint64_t digest_of(std::string_view bytes) noexcept;

using Key = std::array<uint64_t, 2>;
Key random_key();

// Throw SharingError when the host refuses.
File make_shared_file(size_t bytes);
FileName name_of(int descriptor);
// Throws SharingError when the process has ended or has the file no more.
File open_shared_file(const FileName& name);

// A shared file of `bytes` in this process's addresses. Throws SharingError when the file is another kind.
class Mapping {
 public:
  Mapping(const File& file, size_t bytes);
  ~Mapping();
  Mapping(const Mapping&) = delete;
  Mapping& operator=(const Mapping&) = delete;
  void* address() const noexcept { return address_; }

 private:
  void* address_;
  const size_t bytes_;
};

// A shared lock on a range of a file. Throws SharingError when the host refuses.
void lock_range(int descriptor, uint64_t offset, uint64_t bytes);
void unlock_range(int descriptor, uint64_t offset, uint64_t bytes) noexcept;
// Whether others have locked any of it; true when the host does not say.
bool is_locked_by_others(int descriptor, uint64_t offset, uint64_t bytes) noexcept;

}  // namespace loom::runtime
