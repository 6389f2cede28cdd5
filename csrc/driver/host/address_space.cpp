#include "driver/host/address_space.h"

#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

namespace loom::driver {

namespace {

size_t round_up(size_t bytes, size_t granule) { return (bytes + granule - 1) / granule * granule; }

}  // namespace

AddressSpace::AddressSpace(int device, int64_t capacity_bytes, HostAccess access)
    : device_(device), capacity_bytes_(static_cast<size_t>(capacity_bytes)), access_(access) {
  reserve(0);
}

AddressSpace::~AddressSpace() {
  for (size_t i = 0; i < num_ranges_.load(); ++i) {
    const Range& range = ranges_[i];
    munmap(reinterpret_cast<void*>(range.begin), range.bytes + kGranuleBytes);
    if (range.file == -1) continue;
    munmap(reinterpret_cast<void*>(range.engine_begin), range.bytes + kGranuleBytes);
    close(range.file);
  }
}

AddressSpace::SharedFile::~SharedFile() { close(descriptor); }

bool AddressSpace::map(Range& range) const {
  // One granule more than is used: a gap between this range and the next, so that free ranges of two
  // reservations never coalesce.
  const size_t bytes = range.bytes + kGranuleBytes;
  const auto mapped = [&](int access, int flags, int file) {
    void* const address = mmap(nullptr, bytes, access, flags | MAP_NORESERVE, file, 0);
    return address == MAP_FAILED ? 0 : reinterpret_cast<uintptr_t>(address);
  };
  if (access_ != HostAccess::kFenced) {
    const int access = access_ == HostAccess::kFree ? PROT_READ | PROT_WRITE : PROT_NONE;
    range.begin = mapped(access, MAP_PRIVATE | MAP_ANONYMOUS, -1);
    // Not in huge pages: where a hypervisor takes back free memory, it pays for each of them again (measured:
    // a first copy took up to twice as long).
    return range.begin != 0;
  }
  // Sparse: pages exist once they are touched.
  range.file = memfd_create("loom-device-memory", MFD_CLOEXEC);
  if (range.file != -1 && ftruncate(range.file, static_cast<off_t>(bytes)) == 0) {
    range.begin = mapped(PROT_NONE, MAP_SHARED, range.file);
    range.engine_begin = mapped(PROT_READ | PROT_WRITE, MAP_SHARED, range.file);
  }
  if (range.begin != 0 && range.engine_begin != 0) {
    // A forked child would share the memory, where a process without the fence gets a copy.
    for (const uintptr_t begin : {range.begin, range.engine_begin}) {
      madvise(reinterpret_cast<void*>(begin), bytes, MADV_DONTFORK);
    }
    return true;
  }
  const int reason = errno;
  if (range.begin != 0) munmap(reinterpret_cast<void*>(range.begin), bytes);
  if (range.file != -1) close(range.file);
  errno = reason;
  return false;
}

void AddressSpace::reserve(size_t bytes) {
  const size_t num_ranges = num_ranges_.load();
  Range range;
  bool is_mapped = false;
  errno = ENOMEM;
  if (num_ranges < kMaxRanges && capacity_bytes_ <= SIZE_MAX / 4) {
    // One more granule, since the host's pages are smaller.
    range.bytes = round_up(std::max(2 * capacity_bytes_, bytes + kGranuleBytes), kGranuleBytes);
    is_mapped = map(range);
  }
  if (!is_mapped) {
    throw Error("cannot reserve address space for the " + std::to_string(capacity_bytes_) +
                " bytes of device " + std::to_string(device_) + ": " + std::strerror(errno) +
                "; lower TORCH_LOOM_MEMORY or TORCH_LOOM_DEVICES, or raise the limit (ulimit -v)");
  }
  const uintptr_t aligned = round_up(range.begin, kGranuleBytes);
  const size_t whole_granules = (range.begin + range.bytes - aligned) / kGranuleBytes * kGranuleBytes;
  if (whole_granules != 0) free_ranges_.emplace(aligned, whole_granules);
  ranges_[num_ranges] = range;
  num_ranges_.store(num_ranges + 1, std::memory_order_release);
}

const AddressSpace::Range* AddressSpace::range_of(uintptr_t device_address) const noexcept {
  const size_t num_ranges = num_ranges_.load(std::memory_order_acquire);
  for (size_t i = 0; i < num_ranges; ++i) {
    if (device_address - ranges_[i].begin < ranges_[i].bytes) return &ranges_[i];
  }
  return nullptr;
}

void* AddressSpace::engine_address(uintptr_t device_address) const noexcept {
  if (access_ != HostAccess::kFenced) return reinterpret_cast<void*>(device_address);
  const Range& range = *range_of(device_address);
  return reinterpret_cast<void*>(range.engine_begin + (device_address - range.begin));
}

// Returns the pages to the host: free device memory costs nothing.
void AddressSpace::give_back(uintptr_t address, size_t bytes) const noexcept {
  if (access_ != HostAccess::kFenced) {
    madvise(reinterpret_cast<void*>(address), bytes, MADV_DONTNEED);
    return;
  }
  const Range* const range = range_of(address);
  fallocate(range->file, FALLOC_FL_PUNCH_HOLE | FALLOC_FL_KEEP_SIZE,
            static_cast<off_t>(address - range->begin), static_cast<off_t>(bytes));
}

uintptr_t AddressSpace::take(size_t bytes) {
  for (auto range = free_ranges_.begin(); range != free_ranges_.end(); ++range) {
    if (range->second < bytes) continue;
    const auto [address, available] = *range;
    free_ranges_.erase(range);
    if (available != bytes) free_ranges_.emplace(address + bytes, available - bytes);
    return address;
  }
  return 0;
}

uintptr_t AddressSpace::take_or_reserve(size_t bytes) {
  if (const uintptr_t address = take(bytes)) return address;
  reserve(bytes);
  return take(bytes);
}

void* AddressSpace::allocate(size_t bytes, Place place) {
  if (bytes == 0) throw InvalidArgument("allocate: bytes must be at least 1, got 0");
  std::lock_guard<std::mutex> lock(mutex_);
  const size_t free_bytes = capacity_bytes_ - used_bytes_;
  const auto out_of_memory = [&](const std::string& reason) {
    return OutOfMemory("device " + std::to_string(device_) + " is out of memory: asked for " +
                           std::to_string(bytes) + " bytes, " + std::to_string(free_bytes) + " of " +
                           std::to_string(capacity_bytes_) + " are free" + reason,
                       device_, static_cast<int64_t>(std::min(bytes, size_t{INT64_MAX})),
                       static_cast<int64_t>(free_bytes), static_cast<int64_t>(capacity_bytes_));
  };
  // Compared before rounding: a huge request must not wrap around to a small one.
  if (bytes > free_bytes || round_up(bytes, kGranuleBytes) > free_bytes) throw out_of_memory("");
  const size_t rounded = round_up(bytes, kGranuleBytes);
  uintptr_t address = 0;
  if (place.at != nullptr) {
    address = take_in_room(reinterpret_cast<uintptr_t>(place.at), rounded);
  } else {
    if (place.room_bytes != 0 && place.room_bytes < rounded) {
      throw InvalidArgument("allocate: " + std::to_string(bytes) + " bytes do not fit into a room of " +
                            std::to_string(place.room_bytes));
    }
    try {
      const size_t room_bytes = round_up(std::min(place.room_bytes, SIZE_MAX / 4), kGranuleBytes);
      address = take_or_reserve(std::max(rounded, room_bytes));
      if (room_bytes != 0) rooms_.emplace(address, Room{room_bytes, rounded});
    } catch (const Error& error) {
      throw out_of_memory(std::string(" but in pieces, and the host has no more addresses: ") + error.what());
    }
    allocations_.emplace(address, rounded);
  }
  used_bytes_ += rounded;
  return reinterpret_cast<void*>(address);
}

std::map<uintptr_t, AddressSpace::Room>::iterator AddressSpace::room_of(uintptr_t address) {
  const auto after = rooms_.upper_bound(address);
  if (after == rooms_.begin()) return rooms_.end();
  const auto room = std::prev(after);
  return address - room->first < room->second.bytes ? room : rooms_.end();
}

uintptr_t AddressSpace::take_in_room(uintptr_t address, size_t bytes) {
  const auto room = room_of(address);
  if (room == rooms_.end() || address % kGranuleBytes != 0 ||
      bytes > room->first + room->second.bytes - address) {
    throw InvalidArgument("allocate: no room of device " + std::to_string(device_) + " has place for " +
                          std::to_string(bytes) + " bytes at this address");
  }
  auto next = allocations_.lower_bound(address);
  const bool has_previous = next != allocations_.begin();
  const auto previous = has_previous ? std::prev(next) : allocations_.end();
  if ((next != allocations_.end() && next->first < address + bytes) ||
      (has_previous && previous->first + previous->second > address)) {
    throw InvalidArgument("allocate: the " + std::to_string(bytes) +
                          " bytes overlap memory that is in the room of device " + std::to_string(device_));
  }
  room->second.used_bytes += bytes;
  // Memory next to each other is one allocation, so that it can be shared as one, unless a part is already.
  const auto joins = [&](std::map<uintptr_t, size_t>::iterator each) {
    return room_of(each->first) == room && !shared_.contains(each->first);
  };
  auto place = has_previous && previous->first + previous->second == address && joins(previous)
                   ? previous
                   : allocations_.emplace(address, 0).first;
  place->second += bytes;
  if (next != allocations_.end() && next->first == address + bytes && joins(next)) {
    place->second += next->second;
    allocations_.erase(next);
  }
  return address;
}

void AddressSpace::deallocate(void* pointer, size_t bytes) {
  if (pointer == nullptr) return;
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  std::lock_guard<std::mutex> lock(mutex_);
  if (const auto room = room_of(address); room != rooms_.end()) return release_in_room(room, address, bytes);
  if (bytes != 0) {
    throw InvalidArgument("deallocate: the " + std::to_string(bytes) +
                          " bytes lie in no room: only all of an allocation can be given back");
  }
  const auto found = allocations_.find(address);
  if (found != allocations_.end()) {
    const size_t all = found->second;
    if (cut(address, address, all)) put_back(address, all);
    return;
  }
  if (const auto foreign = shared_.find(address); foreign != shared_.end()) {
    const size_t all = foreign->second.bytes;
    shared_.erase(foreign);
    if (map_back(address, all)) put_back(address, all);
    return;
  }
  throw InvalidArgument("deallocate: the address was not returned by allocate() or map_shared() on device " +
                        std::to_string(device_));
}

void AddressSpace::release_in_room(std::map<uintptr_t, Room>::iterator room, uintptr_t address,
                                   size_t bytes) {
  // The allocations that the range covers, one behind the other without a hole.
  std::vector<uintptr_t> parts;
  auto part = allocations_.upper_bound(address);
  if (part != allocations_.begin()) --part;
  uintptr_t covered = address;
  for (; part != allocations_.end() && part->first <= covered && covered < address + bytes; ++part) {
    if (part->first + part->second <= covered) break;
    parts.push_back(part->first);
    covered = part->first + part->second;
  }
  if (bytes == 0 || address % kGranuleBytes != 0 || bytes % kGranuleBytes != 0 || covered < address + bytes) {
    throw InvalidArgument("deallocate: the room of device " + std::to_string(device_) + " has no " +
                          std::to_string(bytes) + " bytes of memory at this address");
  }
  for (const uintptr_t begin : parts) {
    const uintptr_t from = std::max(begin, address);
    const uintptr_t to = std::min(begin + allocations_.at(begin), address + bytes);
    if (cut(begin, from, to - from)) continue;
    throw Error("deallocate: the host does not take back memory of device " + std::to_string(device_) +
                " that was shared: " + std::strerror(errno));
  }
  room->second.used_bytes -= bytes;
  if (room->second.used_bytes != 0) return;
  put_back(room->first, room->second.bytes);
  rooms_.erase(room);
}

bool AddressSpace::cut(uintptr_t begin, uintptr_t address, size_t bytes) {
  const size_t all = allocations_.at(begin);
  const size_t before = address - begin, after = all - before - bytes;
  allocations_.erase(begin);
  used_bytes_ -= bytes;
  if (before != 0) allocations_.emplace(begin, before);
  if (after != 0) allocations_.emplace(address + bytes, after);
  const auto found = shared_.find(begin);
  if (found == shared_.end()) {
    give_back(address, bytes);
    return true;
  }
  const Shared shared = std::move(found->second);
  shared_.erase(found);
  // Of the rest, what is left in the file keeps its place there: others may have mapped it.
  const auto keep = [&](size_t first, size_t size) {
    if (size == 0) return;
    const size_t moved = shared.moved <= first ? 0 : std::min(shared.moved - first, size);
    shared_.emplace(begin + first, Shared{shared.file, size, moved, shared.offset + first});
  };
  keep(0, before);
  keep(before + bytes, after);
  return map_back(address, bytes);
}

void AddressSpace::put_back(uintptr_t start, size_t bytes) {
  const auto next = free_ranges_.lower_bound(start);
  if (next != free_ranges_.end() && start + bytes == next->first) {
    bytes += next->second;
    free_ranges_.erase(next);
  }
  const auto after = free_ranges_.lower_bound(start);
  if (after != free_ranges_.begin()) {
    const auto previous = std::prev(after);
    if (previous->first + previous->second == start) {
      previous->second += bytes;
      return;
    }
  }
  free_ranges_.emplace(start, bytes);
}

MemoryInfo AddressSpace::info() const {
  std::lock_guard<std::mutex> lock(mutex_);
  return {static_cast<int64_t>(capacity_bytes_ - used_bytes_), static_cast<int64_t>(capacity_bytes_)};
}

}  // namespace loom::driver
