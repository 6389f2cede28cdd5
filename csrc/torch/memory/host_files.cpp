#include "torch/memory/host_files.h"

#include <c10/util/Exception.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstring>
#include <mutex>
#include <unordered_set>
#include <utility>

namespace loom::glue::host_files {

namespace {

struct File {
  std::string path;
  void* address;
  size_t bytes;
};

struct Files {
  std::mutex mutex;
  std::string folder;
  std::unordered_set<std::string> paths;
  pid_t owner = getpid();  // a child that is forked has the memory, and not the names
  uint64_t made = 0;
};

Files& files() {
  static auto* const own = new Files;  // leaked: tensors are freed late
  return *own;
}

std::atomic<bool> opened{false};

std::string new_path() {
  Files& own = files();
  const std::lock_guard<std::mutex> lock(own.mutex);
  return own.folder + "/" + std::to_string(own.made++);
}

void keep(const std::string& path) {
  Files& own = files();
  const std::lock_guard<std::mutex> lock(own.mutex);
  own.paths.insert(path);
}

void forget(const std::string& path) {
  Files& own = files();
  const std::lock_guard<std::mutex> lock(own.mutex);
  if (own.owner == getpid() && own.paths.erase(path) != 0) unlink(path.c_str());
}

void free_file(void* context) {
  const auto* const file = static_cast<const File*>(context);
  munmap(file->address, file->bytes);
  forget(file->path);
  delete file;
}

// Returns an error's number, or 0 and the address.
int map_file(const std::string& path, size_t bytes, void** address) {
  const int descriptor = open(path.c_str(), O_RDWR | O_CREAT | O_EXCL | O_CLOEXEC, 0600);
  if (descriptor < 0) return errno;
  keep(path);
  // Without its room taken, a full disk would be a fault at a write.
  int error = posix_fallocate(descriptor, 0, static_cast<off_t>(bytes));
  if (error == 0) {
    *address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, descriptor, 0);
    if (*address == MAP_FAILED) error = errno;
  }
  close(descriptor);
  return error;
}

}  // namespace

void open_folder(std::string folder) {
  Files& own = files();
  const std::lock_guard<std::mutex> lock(own.mutex);
  if (std::exchange(own.owner, getpid()) != getpid()) own.paths.clear();
  own.folder = std::move(folder);
  opened.store(true, std::memory_order_release);
}

void close_folder() { opened.store(false, std::memory_order_release); }

bool is_open() { return opened.load(std::memory_order_acquire); }

c10::DataPtr allocate(size_t bytes) {
  const std::string path = new_path();
  void* address = nullptr;
  const int error = map_file(path, bytes, &address);
  if (error != 0) {
    forget(path);
    TORCH_CHECK(false, "offload: no file of ", bytes, " bytes can be made at ", path, ": ",
                std::strerror(error), ". RBLN_OFFLOAD_DIR says where files are");
  }
  return {address, new File{path, address, bytes}, &free_file, c10::Device(c10::DeviceType::CPU)};
}

size_t remove_names() {
  Files& own = files();
  const std::lock_guard<std::mutex> lock(own.mutex);
  if (own.owner != getpid()) return 0;
  for (const std::string& path : own.paths) unlink(path.c_str());
  return std::exchange(own.paths, {}).size();
}

}  // namespace loom::glue::host_files
