// Names for unnamed files that processes share.
#pragma once

#include <cstdint>
#include <string>

namespace loom {

// A file as another process finds it: by its owner, while that lives and has it open.
struct FileName {
  int32_t process;
  int32_t descriptor;
  uint64_t inode;
};

// Why a file cannot be opened.
struct NotOpened {
  std::string reason;
  bool is_gone = false;  // the process has ended, or has the file no more
};

// False, with errno, when the host refuses.
bool name_file(int descriptor, FileName* name) noexcept;
// A descriptor of its own, which the caller closes, of a memfd whose name begins with "loom-shared-"; -1,
// with the reason, when there is none. The name may be damaged, or forged: no other file is opened.
int open_named_file(const FileName& name, NotOpened* why);

}  // namespace loom
