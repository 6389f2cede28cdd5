#include "memory.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <mutex>

namespace loom::mirror {

using driver::Address;
using driver::AddressKind;
using driver::SharedMemory;
using driver::ShareHandle;

namespace {

constexpr size_t kGranule = size_t{2} << 20;
// Addresses cost nothing, so there are many more of them than memory: holes are left where they are.
constexpr size_t kAddressesPerByte = 16;
// Seals prevent truncation, which would crash processes that map the file.
constexpr int kSeals = F_SEAL_SHRINK | F_SEAL_GROW | F_SEAL_SEAL;

struct FileName {
  int32_t process, descriptor;
  uint64_t inode;
};

size_t round_up(size_t bytes) { return (bytes + kGranule - 1) / kGranule * kGranule; }

std::string text_of(int64_t number) { return std::to_string(number); }

void* pointer(uintptr_t address) { return reinterpret_cast<void*>(address); }

int make_file(size_t bytes) {
  const int file = memfd_create("loom-mirror", MFD_CLOEXEC | MFD_ALLOW_SEALING);
  if (file == -1) return -1;
  if (ftruncate(file, static_cast<off_t>(bytes)) == 0 && fcntl(file, F_ADD_SEALS, kSeals) == 0) return file;
  close(file);
  return -1;
}

char* map_file(int file, size_t bytes) {
  void* const contents = mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_SHARED | MAP_NORESERVE, file, 0);
  if (contents == MAP_FAILED) return nullptr;
  madvise(contents, bytes, MADV_DONTFORK);
  return static_cast<char*>(contents);
}

int open_file(const ShareHandle& handle, size_t bytes) {
  FileName name{};
  std::memcpy(&name, handle.data(), sizeof name);
  const std::string path = "/proc/" + text_of(name.process) + "/fd/" + text_of(name.descriptor);
  struct stat status{};
  // Asked before it is opened: a forged handle opens nothing that is not a plain file.
  if (stat(path.c_str(), &status) == 0 && S_ISREG(status.st_mode) && status.st_ino == name.inode) {
    const int file = open(path.c_str(), O_RDWR | O_CLOEXEC);
    if (file != -1 && fstat(file, &status) == 0 && status.st_ino == name.inode &&
        static_cast<size_t>(status.st_size) == bytes && bytes % kGranule == 0 &&
        (fcntl(file, F_GET_SEALS) & kSeals) == kSeals) {
      return file;
    }
    if (file != -1) close(file);
  }
  throw SharingError("map_shared: the handle names no " + std::to_string(bytes) +
                     " bytes of shared device memory");
}

}  // namespace

Memory::Memory(const driver::DriverConfig& config) : devices_(static_cast<size_t>(config.device_count)) {
  for (size_t i = 0; i < devices_.size(); ++i) {
    Device& device = devices_[i];
    device.capacity = static_cast<size_t>(config.memory_bytes_of(static_cast<int>(i)));
    const bool fits = device.capacity < SIZE_MAX / kAddressesPerByte / 2;
    device.bytes = fits ? round_up(kAddressesPerByte * device.capacity) + 3 * kGranule : 0;
    void* const begin =
        fits ? mmap(nullptr, device.bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0)
             : MAP_FAILED;
    if (begin == MAP_FAILED) {
      throw Error("cannot reserve address space for the " + std::to_string(device.capacity) +
                  " bytes of device " + std::to_string(i) +
                  "; lower TORCH_LOOM_MEMORY or TORCH_LOOM_DEVICES");
    }
    // The first and the last granule are gaps: contents that the host maps may lie on either side.
    device.begin = reinterpret_cast<uintptr_t>(begin) + kGranule;
    const uintptr_t aligned = round_up(device.begin);
    device.bytes -= 2 * kGranule;
    device.holes.emplace(aligned, (device.begin + device.bytes - aligned) / kGranule * kGranule);
  }
}

Memory::~Memory() {
  for (const Device& device : devices_) {
    for (const auto& [address, allocation] : device.allocations) {
      munmap(allocation.contents, allocation.bytes);
      if (allocation.file != -1) close(allocation.file);
    }
    munmap(pointer(device.begin - kGranule), device.bytes + 2 * kGranule);
  }
  for (const auto& [address, range] : host_) {
    if (range.is_own) std::free(pointer(address));
  }
}

void Memory::check_device(int device) const {
  const int count = static_cast<int>(devices_.size());
  if (device >= 0 && device < count) return;
  if (count == 0) throw InvalidArgument("there is no device " + text_of(device) + ": the driver has none");
  throw InvalidArgument("device must be in 0 … " + text_of(count - 1) + ", got " + text_of(device));
}

// First fit. A granule stays free behind each allocation: contents of neighbours do not adjoin, so their
// addresses must not.
uintptr_t Memory::take(Device& device, size_t bytes) {
  const size_t taken = bytes + kGranule;
  for (auto hole = device.holes.begin(); hole != device.holes.end(); ++hole) {
    if (hole->second < taken) continue;
    const auto [address, available] = *hole;
    device.holes.erase(hole);
    if (available != taken) device.holes.emplace(address + taken, available - taken);
    return address;
  }
  return 0;
}

void Memory::put_back(Device& device, uintptr_t address, size_t bytes) {
  auto hole = device.holes.emplace(address, bytes + kGranule).first;
  if (const auto next = std::next(hole);
      next != device.holes.end() && address + hole->second == next->first) {
    hole->second += next->second;
    device.holes.erase(next);
  }
  if (hole == device.holes.begin()) return;
  const auto previous = std::prev(hole);
  if (previous->first + previous->second != address) return;
  previous->second += hole->second;
  device.holes.erase(hole);
}

void Memory::keep(int device, uintptr_t address, const Allocation& allocation) {
  devices_[static_cast<size_t>(device)].allocations.emplace(address, allocation);
  contents_.emplace(reinterpret_cast<uintptr_t>(allocation.contents),
                    Place{device, address, allocation.bytes});
}

void* Memory::allocate(int index, size_t bytes) {
  check_device(index);
  if (bytes == 0) throw InvalidArgument("allocate: bytes must be at least 1, got 0");
  const std::lock_guard lock(mutex_);
  Device& device = devices_[static_cast<size_t>(index)];
  const size_t free_bytes = device.capacity - device.used;
  const auto out_of_memory = [&](const std::string& reason) {
    return OutOfMemory("device " + text_of(index) + " is out of memory: asked for " + std::to_string(bytes) +
                           " bytes, " + std::to_string(free_bytes) + " are free" + reason,
                       index, static_cast<int64_t>(std::min(bytes, size_t{INT64_MAX})),
                       static_cast<int64_t>(free_bytes), static_cast<int64_t>(device.capacity));
  };
  if (bytes > free_bytes || round_up(bytes) > free_bytes) throw out_of_memory("");
  const size_t rounded = round_up(bytes);
  const int file = make_file(rounded);
  char* const contents = file == -1 ? nullptr : map_file(file, rounded);
  const uintptr_t address = contents == nullptr ? 0 : take(device, rounded);
  if (address == 0) {
    const std::string reason = std::string(", but the host refuses: ") + std::strerror(errno);
    if (contents != nullptr) munmap(contents, rounded);
    if (file != -1) close(file);
    throw out_of_memory(reason);
  }
  keep(index, address, {rounded, contents, file});
  device.used += rounded;
  return pointer(address);
}

void* Memory::allocate_host(size_t bytes) {
  if (bytes == 0) throw InvalidArgument("allocate_host: bytes must be at least 1, got 0");
  void* address = nullptr;
  if (bytes > static_cast<size_t>(INT64_MAX) || posix_memalign(&address, 64, bytes) != 0) {
    const int64_t page = sysconf(_SC_PAGESIZE);
    throw OutOfMemory(
        "the host is out of memory: asked for " + std::to_string(bytes) + " bytes of pinned memory", -1,
        static_cast<int64_t>(std::min(bytes, size_t{INT64_MAX})), page * sysconf(_SC_AVPHYS_PAGES),
        page * sysconf(_SC_PHYS_PAGES));
  }
  const std::lock_guard lock(mutex_);
  host_.emplace(reinterpret_cast<uintptr_t>(address), HostRange{bytes, -1, true});
  return address;
}

bool Memory::deallocate_device(uintptr_t address) {
  for (Device& device : devices_) {
    const auto found = device.allocations.find(address);
    if (found == device.allocations.end()) continue;
    const Allocation allocation = found->second;
    device.allocations.erase(found);
    contents_.erase(reinterpret_cast<uintptr_t>(allocation.contents));
    munmap(allocation.contents, allocation.bytes);
    if (allocation.file != -1) {
      close(allocation.file);
      device.used -= allocation.bytes;
    }
    put_back(device, address, allocation.bytes);
    return true;
  }
  return false;
}

void Memory::deallocate(void* pointer) {
  if (pointer == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  {
    const std::lock_guard lock(mutex_);
    if (deallocate_device(address)) return;
    const auto found = host_.find(address);
    if (found == host_.end() || !found->second.is_own) {
      throw InvalidArgument(
          "deallocate: the address was not returned by allocate(), allocate_host() or map_shared()");
    }
    host_.erase(found);
  }
  std::free(pointer);
}

driver::MemoryInfo Memory::info(int device) const {
  check_device(device);
  const std::shared_lock lock(mutex_);
  const Device& own = devices_[static_cast<size_t>(device)];
  return {static_cast<int64_t>(own.capacity - own.used), static_cast<int64_t>(own.capacity)};
}

Address Memory::locate(const void* asked) const noexcept {
  const auto value = reinterpret_cast<uintptr_t>(asked);
  void* const itself = const_cast<void*>(asked);
  const std::shared_lock lock(mutex_);
  for (size_t i = 0; i < devices_.size(); ++i) {
    const Device& device = devices_[i];
    if (value - device.begin >= device.bytes) continue;
    const auto after = device.allocations.upper_bound(value);
    if (after != device.allocations.begin()) {
      const auto& [address, allocation] = *std::prev(after);
      if (value - address < allocation.bytes) {
        return {AddressKind::kDevice, static_cast<int>(i), itself, allocation.contents + (value - address)};
      }
    }
    return {AddressKind::kDevice, static_cast<int>(i), itself, nullptr};
  }
  if (const auto after = contents_.upper_bound(value); after != contents_.begin()) {
    const auto& [begin, place] = *std::prev(after);
    if (value - begin < place.bytes) {
      return {AddressKind::kDevice, place.device, pointer(place.address + (value - begin)), itself};
    }
  }
  if (const auto after = host_.upper_bound(value); after != host_.begin()) {
    const auto& [begin, range] = *std::prev(after);
    if (value - begin < range.bytes) {
      return {range.device < 0 ? AddressKind::kPinnedHost : AddressKind::kDevice, range.device, itself,
              itself};
    }
  }
  return {AddressKind::kUnknown, -1, itself, itself};
}

bool Memory::overlaps_device(uintptr_t begin, uintptr_t last) const noexcept {
  const auto lies_in = [&](uintptr_t start, size_t bytes) { return begin < start + bytes && start <= last; };
  return std::any_of(devices_.begin(), devices_.end(),
                     [&](const Device& device) { return lies_in(device.begin, device.bytes); }) ||
         std::any_of(contents_.begin(), contents_.end(),
                     [&](const auto& entry) { return lies_in(entry.first, entry.second.bytes); });
}

void Memory::add(int device, void* address, size_t bytes) {
  if (device != -1) check_device(device);
  const auto begin = reinterpret_cast<uintptr_t>(address);
  const auto refuse = [&](const std::string& reason) {
    throw InvalidArgument("register_memory: these " + std::to_string(bytes) + " bytes " + reason);
  };
  if (begin == 0 || bytes == 0 || bytes > UINTPTR_MAX - begin) refuse("are no range of memory");
  const uintptr_t last = begin + bytes - 1;
  const std::lock_guard lock(mutex_);
  if (overlaps_device(begin, last)) refuse("are device memory");
  const auto page = static_cast<uintptr_t>(sysconf(_SC_PAGESIZE));
  for (const uintptr_t end : {begin, last}) {
    unsigned char is_resident = 0;
    if (mincore(pointer(end / page * page), 1, &is_resident) != 0) refuse("are not memory of this process");
  }
  if (const auto after = host_.upper_bound(last); after != host_.begin()) {
    const auto& [start, range] = *std::prev(after);
    if (start + range.bytes > begin) {
      refuse("overlap others, which are " +
             (range.device < 0 ? "pinned already" : "memory of device " + text_of(range.device)));
    }
  }
  host_.emplace(begin, HostRange{bytes, device, false});
}

void Memory::remove(void* address) {
  if (address == nullptr) return;
  const std::lock_guard lock(mutex_);
  const auto found = host_.find(reinterpret_cast<uintptr_t>(address));
  if (found == host_.end() || found->second.is_own) {
    throw InvalidArgument("unregister_memory: no registered range begins at " +
                          std::to_string(reinterpret_cast<uintptr_t>(address)));
  }
  host_.erase(found);
}

SharedMemory Memory::share(int index, const void* address) const {
  check_device(index);
  const auto value = reinterpret_cast<uintptr_t>(address);
  const std::shared_lock lock(mutex_);
  const auto& allocations = devices_[static_cast<size_t>(index)].allocations;
  const auto after = allocations.upper_bound(value);
  const auto found = after == allocations.begin() ? allocations.end() : std::prev(after);
  if (found == allocations.end() || value - found->first >= found->second.bytes || found->second.file == -1) {
    throw InvalidArgument("share: the address lies in no allocation of device " + text_of(index));
  }
  struct stat status{};
  if (fstat(found->second.file, &status) != 0) {
    throw SharingError(std::string("cannot share device memory: ") + std::strerror(errno));
  }
  const FileName name{getpid(), found->second.file, status.st_ino};
  const size_t offset = value - found->first;
  SharedMemory memory{{}, found->second.bytes, offset, found->second.bytes - offset};
  std::memcpy(memory.handle.data(), &name, sizeof name);
  return memory;
}

void* Memory::map_shared(int index, const ShareHandle& handle, size_t bytes) {
  check_device(index);
  const int file = open_file(handle, bytes);
  char* const contents = map_file(file, bytes);
  const std::string reason = std::strerror(errno);
  close(file);
  if (contents == nullptr) throw SharingError("map_shared: the host refuses: " + reason);
  const std::lock_guard lock(mutex_);
  const uintptr_t address = take(devices_[static_cast<size_t>(index)], bytes);
  if (address == 0) {
    munmap(contents, bytes);
    throw SharingError("map_shared: " + std::to_string(bytes) + " bytes are more than device " +
                       text_of(index) + " can hold; give it more memory (TORCH_LOOM_MEMORY)");
  }
  keep(index, address, {bytes, contents, -1});
  return pointer(address);
}

}  // namespace loom::mirror
