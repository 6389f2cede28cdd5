#include "runtime/ipc/shared_files.h"

#include <fcntl.h>
#include <pthread.h>
#include <sys/mman.h>
#include <sys/random.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cerrno>
#include <cstring>
#include <mutex>
#include <set>
#include <string>

namespace loom::runtime {

namespace {

constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

// Leaked: files may be closed by other static objects.
struct OpenFiles {
  std::mutex mutex;
  std::set<int> descriptors;
};

OpenFiles& open_files() {
  static auto* const all = [] {
    auto* const files = new OpenFiles;
    pthread_atfork([] { open_files().mutex.lock(); }, [] { open_files().mutex.unlock(); },
                   [] {
                     for (const int descriptor : open_files().descriptors) close(descriptor);
                     open_files().descriptors.clear();
                     open_files().mutex.unlock();
                   });
    return files;
  }();
  return *all;
}

[[noreturn]] void refuse(const std::string& what) { throw SharingError(what + ": " + std::strerror(errno)); }

struct flock range_lock(short kind, uint64_t offset, uint64_t bytes) {
  struct flock lock{};
  lock.l_type = kind;
  lock.l_whence = SEEK_SET;
  lock.l_start = static_cast<off_t>(offset);
  lock.l_len = static_cast<off_t>(bytes);
  return lock;
}

}  // namespace

File::File(int descriptor) : descriptor_(descriptor) {
  const std::lock_guard<std::mutex> lock(open_files().mutex);
  open_files().descriptors.insert(descriptor);
}

File::~File() {
  if (descriptor_ == -1) return;
  const std::lock_guard<std::mutex> lock(open_files().mutex);
  if (open_files().descriptors.erase(descriptor_) != 0) close(descriptor_);
}

Key random_key() {
  Key key{};
  if (getrandom(key.data(), sizeof key, 0) != static_cast<ssize_t>(sizeof key)) refuse("no random numbers");
  return key;
}

File make_shared_file(size_t bytes) {
  const int descriptor = memfd_create("loom-shared-state", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (descriptor == -1) refuse("cannot share with other processes");
  File file(descriptor);
  if (ftruncate(descriptor, static_cast<off_t>(bytes)) != 0 || fcntl(descriptor, F_ADD_SEALS, kSeals) != 0) {
    refuse("cannot share with other processes");
  }
  return file;
}

FileName name_of(int descriptor) {
  FileName name{};
  if (!name_file(descriptor, &name)) refuse("cannot share with other processes");
  return name;
}

uint64_t digest_of(std::string_view bytes) noexcept {
  uint64_t digest = 0xCBF29CE484222325;  // FNV-1a
  for (const char byte : bytes) digest = (digest ^ static_cast<unsigned char>(byte)) * 0x100000001B3;
  return digest;
}

File open_shared_file(const FileName& name) {
  NotOpened why;
  const int descriptor = open_named_file(name, &why);
  if (descriptor != -1) return File(descriptor);
  if (why.is_gone) throw SharerGone(why.reason);
  throw SharingError(why.reason);
}

Mapping::Mapping(const File& file, size_t bytes) : bytes_(bytes) {
  struct stat status{};
  const int seals = fcntl(file.descriptor(), F_GET_SEALS);
  if (fstat(file.descriptor(), &status) != 0 || seals == -1 || (seals & kSeals) != kSeals ||
      static_cast<size_t>(status.st_size) != bytes) {
    throw SharingError("the handle names a file of another kind: it was damaged, or another version made it");
  }
  address_ = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file.descriptor(), 0);
  if (address_ == MAP_FAILED) refuse("cannot map what another process shares");
  madvise(address_, bytes, MADV_DONTFORK);
}

Mapping::~Mapping() { munmap(address_, bytes_); }

void lock_range(int descriptor, uint64_t offset, uint64_t bytes) {
  struct flock lock = range_lock(F_RDLCK, offset, bytes);
  if (fcntl(descriptor, F_OFD_SETLK, &lock) != 0) refuse("cannot lock what another process shares");
}

void unlock_range(int descriptor, uint64_t offset, uint64_t bytes) noexcept {
  struct flock lock = range_lock(F_UNLCK, offset, bytes);
  fcntl(descriptor, F_OFD_SETLK, &lock);
}

bool is_locked_by_others(int descriptor, uint64_t offset, uint64_t bytes) noexcept {
  struct flock lock = range_lock(F_WRLCK, offset, bytes);
  return fcntl(descriptor, F_OFD_GETLK, &lock) != 0 || lock.l_type != F_UNLCK;
}

}  // namespace loom::runtime
