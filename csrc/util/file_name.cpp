#include "util/file_name.h"

#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <climits>
#include <cstring>
#include <string_view>

namespace loom {

namespace {

// What the files of shared memory, the runtime's and the drivers', are called where the kernel shows them.
constexpr std::string_view kPrefix = "/memfd:loom-shared-";

}  // namespace

bool name_file(int descriptor, FileName* name) noexcept {
  struct stat status{};
  if (fstat(descriptor, &status) != 0) return false;
  *name = {getpid(), descriptor, status.st_ino};
  return true;
}

int open_named_file(const FileName& name, NotOpened* why) {
  const auto gone = [&] {
    why->is_gone = true;
    why->reason = "what process " + std::to_string(name.process) +
                  " shared is there no more: the process has ended, or has freed it. It must live, and keep "
                  "what it sends, until that is received";
    return -1;
  };
  const auto refused = [&](const std::string& what) {
    why->reason = what + ": " + std::strerror(errno);
    return -1;
  };
  if (name.process <= 0 || name.descriptor < 0) return gone();
  const std::string path = "/proc/" + std::to_string(name.process) + "/fd/" + std::to_string(name.descriptor);
  // Looked at before it is opened: the handle is not to be trusted, and opening a device may do something.
  char target[PATH_MAX];
  const ssize_t length = readlink(path.c_str(), target, sizeof target);
  if (length < 0) {
    if (errno == EACCES || errno == EPERM) return refused("cannot reach what " + path + " shares");
    return gone();
  }
  if (std::string_view(target, static_cast<size_t>(length)).substr(0, kPrefix.size()) != kPrefix)
    return gone();
  const int descriptor = open(path.c_str(), O_RDWR | O_CLOEXEC | O_NONBLOCK);
  if (descriptor == -1) {
    if (errno == ENOENT || errno == ESRCH) return gone();
    return refused("cannot open what process " + std::to_string(name.process) + " shares");
  }
  struct stat status{};
  if (fstat(descriptor, &status) == 0 && status.st_ino == name.inode) return descriptor;
  close(descriptor);
  return gone();
}

}  // namespace loom
