// Device memory that other processes map. A shared allocation moves into an unnamed file in memory of its
// own, so its pages live exactly as long as a process maps them.
#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>

#include "driver/host/address_space.h"
#include "driver/host/gate.h"
#include "util/file_name.h"

namespace loom::driver {

namespace {

// Bytes that are in two places at once while an allocation moves.
constexpr size_t kChunkBytes = size_t{64} << 20;
constexpr size_t kPageBytes = 4096;
// Seals prevent truncation, which would crash processes that map the file.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

SharingError refused(const std::string& what) { return SharingError(what + ": " + std::strerror(errno)); }

bool is_zero(const char* page) { return page[0] == 0 && std::memcmp(page, page + 1, kPageBytes - 1) == 0; }

// Pages without contents are left out: they cost nothing.
void write_contents(int file, size_t offset, const char* from, size_t bytes) {
  const auto write_all = [&](size_t begin, size_t end) {
    while (begin < end) {
      const ssize_t written = pwrite(file, from + begin, end - begin, static_cast<off_t>(offset + begin));
      if (written < 0 && errno == EINTR) continue;
      if (written <= 0) throw refused("cannot move device memory to where other processes see it");
      begin += static_cast<size_t>(written);
    }
  };
  size_t begin = 0;
  for (size_t page = 0; page < bytes; page += kPageBytes) {
    if (!is_zero(from + page)) continue;
    write_all(begin, page);
    begin = page + kPageBytes;
  }
  write_all(begin, bytes);
}

ShareHandle handle_of(int file) {
  FileName name{};
  if (!name_file(file, &name)) throw refused("cannot share device memory");
  ShareHandle handle{};
  static_assert(sizeof name <= sizeof handle);
  std::memcpy(handle.data(), &name, sizeof name);
  return handle;
}

// Closed at the end: a mapping needs its file no longer.
struct OpenedFile {
  const int descriptor;
  explicit OpenedFile(const ShareHandle& handle) : descriptor(open(handle)) {}
  ~OpenedFile() { close(descriptor); }
  OpenedFile(const OpenedFile&) = delete;
  OpenedFile& operator=(const OpenedFile&) = delete;

 private:
  static int open(const ShareHandle& handle) {
    FileName name{};
    std::memcpy(&name, handle.data(), sizeof name);
    NotOpened why;
    const int descriptor = open_named_file(name, &why);
    if (descriptor != -1) return descriptor;
    if (why.is_gone) throw SharerGone("map_shared: " + why.reason);
    throw SharingError("map_shared: " + why.reason);
  }
};

int make_file(size_t bytes) {
  const int file = memfd_create("loom-shared-memory", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file == -1) throw refused("cannot share device memory");
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0 && fcntl(file, F_ADD_SEALS, kSeals) == 0) return file;
  const SharingError error = refused("cannot share " + std::to_string(bytes) + " bytes of device memory");
  close(file);
  throw error;
}

}  // namespace

void AddressSpace::map_file(uintptr_t address, size_t bytes, int file, size_t offset) const {
  const auto map = [&](uintptr_t where, int access) {
    void* const at = reinterpret_cast<void*>(where);
    if (mmap(at, bytes, access, MAP_SHARED | MAP_FIXED | MAP_NORESERVE, file, static_cast<off_t>(offset)) ==
        MAP_FAILED) {
      throw refused("cannot map shared device memory");
    }
    madvise(at, bytes, MADV_DONTFORK);
  };
  map(reinterpret_cast<uintptr_t>(engine_address(address)), PROT_READ | PROT_WRITE);
  if (access_ == HostAccess::kFenced) map(address, PROT_NONE);
}

bool AddressSpace::map_back(uintptr_t address, size_t bytes) const noexcept {
  const Range& range = *range_of(address);
  const auto map = [&](uintptr_t where, int access, int flags, off_t offset) {
    void* const at = reinterpret_cast<void*>(where);
    const int all_flags = flags | MAP_FIXED | MAP_NORESERVE;
    return mmap(at, bytes, access, all_flags, range.file, offset) != MAP_FAILED;
  };
  if (access_ == HostAccess::kFree)
    return map(address, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, 0);
  const auto offset = static_cast<off_t>(address - range.begin);
  const uintptr_t engine = range.engine_begin + (address - range.begin);
  if (!map(address, PROT_NONE, MAP_SHARED, offset)) return false;
  if (!map(engine, PROT_READ | PROT_WRITE, MAP_SHARED, offset)) return false;
  for (const uintptr_t begin : {address, engine}) {
    madvise(reinterpret_cast<void*>(begin), bytes, MADV_DONTFORK);
  }
  give_back(address, bytes);
  return true;
}

void AddressSpace::move_to_file(uintptr_t address, Shared& shared) const {
  while (shared.moved < shared.bytes) {
    const size_t bytes = std::min(kChunkBytes, shared.bytes - shared.moved);
    const uintptr_t begin = address + shared.moved;
    const auto* const from = static_cast<const char*>(engine_address(begin));
    write_contents(shared.file->descriptor, shared.offset + shared.moved, from, bytes);
    map_file(begin, bytes, shared.file->descriptor, shared.offset + shared.moved);
    if (access_ == HostAccess::kFenced) give_back(begin, bytes);
    shared.moved += bytes;
  }
}

SharedMemory AddressSpace::share(const void* address) {
  const auto value = reinterpret_cast<uintptr_t>(address);
  // With the lock held.
  const auto find = [&] {
    auto allocation = allocations_.upper_bound(value);
    if (allocation == allocations_.begin() ||
        value >= std::prev(allocation)->first + std::prev(allocation)->second) {
      throw InvalidArgument("share: the address lies in no allocation of device " + std::to_string(device_));
    }
    return *std::prev(allocation);
  };
  const auto describe = [&](const Shared& shared, uintptr_t begin) {
    const size_t offset = value - begin;
    return SharedMemory{handle_of(shared.file->descriptor), shared.file->bytes, shared.offset + offset,
                        shared.bytes - offset};
  };
  if (access_ == HostAccess::kNone) {
    throw NotSupported("share: this driver's memory has no contents that another process could see");
  }
  {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [begin, bytes] = find();
    const auto known = shared_.find(begin);
    if (known != shared_.end() && known->second.moved == bytes) return describe(known->second, begin);
  }
  SharedMemory result{};
  gate::while_closed([&] {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto [begin, bytes] = find();
    auto known = shared_.find(begin);
    if (known == shared_.end()) {
      std::shared_ptr<const SharedFile> file(new SharedFile{make_file(bytes), bytes});
      known = shared_.emplace(begin, Shared{std::move(file), bytes, 0, 0}).first;
    }
    move_to_file(begin, known->second);
    result = describe(known->second, begin);
  });
  return result;
}

void* AddressSpace::map_shared(const ShareHandle& handle, size_t bytes) {
  if (access_ == HostAccess::kNone) {
    throw NotSupported("map_shared: this driver's memory has no contents that another process could see");
  }
  const OpenedFile file(handle);
  struct stat status{};
  const int seals = fcntl(file.descriptor, F_GET_SEALS);
  if (fstat(file.descriptor, &status) != 0 || seals == -1 || (seals & kSeals) != kSeals || bytes == 0 ||
      static_cast<size_t>(status.st_size) != bytes || bytes % kGranuleBytes != 0) {
    throw SharingError("map_shared: the handle names no " + std::to_string(bytes) +
                       " bytes of shared device memory");
  }
  const std::lock_guard<std::mutex> lock(mutex_);
  uintptr_t address = 0;
  try {
    if (bytes <= 2 * capacity_bytes_) address = take_or_reserve(bytes);
  } catch (const Error& error) {
    throw SharingError("map_shared: there is no room for " + std::to_string(bytes) +
                       " bytes: " + error.what());
  }
  if (address == 0) {
    throw SharingError("map_shared: " + std::to_string(bytes) + " bytes are more than device " +
                       std::to_string(device_) + " can hold; give it more memory (TORCH_LOOM_MEMORY)");
  }
  try {
    map_file(address, bytes, file.descriptor, 0);
  } catch (...) {
    if (map_back(address, bytes)) put_back(address, bytes);
    throw;
  }
  shared_.emplace(address, Shared{nullptr, bytes, bytes, 0});
  return reinterpret_cast<void*>(address);
}

}  // namespace loom::driver
