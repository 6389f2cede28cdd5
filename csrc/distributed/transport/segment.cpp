#include "distributed/transport/segment.h"

#include <fcntl.h>
#include <poll.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <cerrno>
#include <csignal>
#include <cstring>
#include <fstream>

#include "driver/error.h"
#include "util/waiting.h"

namespace loom::distributed {

namespace {

void* map(int file, size_t bytes) {
  void* const address = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED, file, 0);
  return address == MAP_FAILED ? nullptr : address;
}

Error refused(const char* what) {
  return Error(std::string("collectives: cannot ") + what + ": " + std::strerror(errno));
}

uint64_t inode_of(const char* path) {
  struct stat found{};
  return stat(path, &found) == 0 ? static_cast<uint64_t>(found.st_ino) : 0;
}

bool is_gone(int process) {
  std::string line;
  std::getline(std::ifstream("/proc/" + std::to_string(process) + "/stat"), line);
  const size_t state = line.rfind(')') + 2;  // behind the name, which may have any letters
  if (state < line.size()) return line[state] == 'Z' || line[state] == 'X';
  return kill(process, 0) == -1 && errno == ESRCH;
}

}  // namespace

std::unique_ptr<Segment> Segment::make(int num_ranks) {
  const size_t bytes = bytes_for(num_ranks);
  const int file = memfd_create("loom-shared-collectives", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file == -1) throw refused("make memory that ranks share");
  void* const address = ftruncate(file, static_cast<off_t>(bytes)) == 0 ? map(file, bytes) : nullptr;
  if (address == nullptr) {
    const Error error = refused("make memory that ranks share");
    close(file);
    throw error;
  }
  // A file that shrinks would end the processes that map it.
  fcntl(file, F_ADD_SEALS, F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL);
  std::unique_ptr<Segment> made(new Segment(address, bytes, file));
  if (!name_file(file, &made->name_)) throw refused("name memory that ranks share");
  made->header().is_ready.store(1, std::memory_order_release);
  return made;
}

std::unique_ptr<Segment> Segment::open(const FileName& name, int num_ranks, std::string* reason) {
  NotOpened why;
  const int file = open_named_file(name, &why);
  if (file == -1) {
    *reason = why.reason;
    return nullptr;
  }
  const size_t bytes = bytes_for(num_ranks);
  struct stat found{};
  void* address = nullptr;
  if (fstat(file, &found) == 0 && found.st_size == static_cast<off_t>(bytes)) {
    address = map(file, bytes);
  } else {
    *reason = "its memory has another size: it is of another group";
  }
  close(file);
  if (address == nullptr) return nullptr;
  std::unique_ptr<Segment> opened(new Segment(address, bytes, -1));
  opened->name_ = name;
  return opened;
}

Segment::~Segment() {
  munmap(address_, bytes_);
  if (file_ != -1) close(file_);
}

Process::Process(int id) : id_(id), file_(static_cast<int>(syscall(SYS_pidfd_open, id, 0))) {}

Process::~Process() {
  if (file_ != -1) close(file_);
}

bool Process::has_ended() const noexcept {
  // It ended before it could be watched, or cannot be: old kernels and some containers lack the call.
  if (file_ == -1) return is_gone(id_);
  pollfd entry{file_, POLLIN, 0};
  return poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

std::string machine_name() {
  std::string boot;
  std::ifstream("/proc/sys/kernel/random/boot_id") >> boot;
  // A namespace of its own is a machine of its own: its processes have no names for others'.
  return boot + "/" + std::to_string(inode_of("/proc/self/ns/pid")) + "/" +
         std::to_string(inode_of("/proc/self/ns/net"));
}

void ring_bell(SegmentHeader& of) noexcept {
  of.bell.fetch_add(1, std::memory_order_seq_cst);
  if (of.sleepers.load(std::memory_order_seq_cst) != 0) wake_all_sharing(&of.bell);
}

void sleep_on_bell(SegmentHeader& own, int32_t heard, std::chrono::nanoseconds longest) noexcept {
  sleep_on_shared(&own.bell, static_cast<uint32_t>(heard), longest);
}

}  // namespace loom::distributed
