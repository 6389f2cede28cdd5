#include "runtime/ipc/shared_memory.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <map>
#include <mutex>
#include <optional>
#include <string_view>
#include <vector>

#include "runtime/capture.h"
#include "runtime/ipc/shared_files.h"
#include "runtime/worlds.h"

namespace loom::runtime::shared {

namespace {

constexpr char kMagic[8] = {'L', 'O', 'O', 'M', 'M', 'E', 'M', '2'};

// A ticket's word: the number of its use, then two bits of state.
enum State : uint64_t { kFree = 0, kInFlight = 1, kReceived = 2 };
constexpr size_t kNumTickets = size_t{1} << 16;

struct LedgerPage {
  Key key;
  std::atomic<uint64_t> tickets[kNumTickets];
  std::atomic<uint64_t> digests[kNumTickets];  // of the handles: damaged handles are refused
};
static_assert(std::atomic<uint64_t>::is_always_lock_free);

struct Ticket {
  uint32_t index;
  uint64_t word;  // while it is in flight
};

struct Handle {
  char magic[8];
  Key key;
  FileName ledger;
  driver::ShareHandle segment;
  uint64_t segment_bytes, offset, block_bytes, bytes, ticket_word;
  uint64_t block;  // the sender's address of it
  uint32_t ticket, device;
};

uint64_t digest_of(const Handle& handle) {
  return runtime::digest_of({reinterpret_cast<const char*>(&handle), sizeof handle});
}

// This process's, for what it sends. Made at the first send.
struct Ledger {
  const File file = make_shared_file(sizeof(LedgerPage));
  const Mapping mapping{file, sizeof(LedgerPage)};
  uint32_t num_used = 0;
  std::vector<Ticket> spare;

  Ledger() { page().key = random_key(); }
  LedgerPage& page() const { return *static_cast<LedgerPage*>(mapping.address()); }
  Ticket issue() {
    Ticket ticket{0, 0};
    if (!spare.empty()) {
      ticket = spare.back();
      spare.pop_back();
      ticket.word += 4;
    } else if (num_used < kNumTickets) {
      ticket = {num_used++, kInFlight};
    } else {
      throw SharingError(std::to_string(kNumTickets) +
                         " tensors were sent and not received: receive some before sending more");
    }
    page().tickets[ticket.index].store(ticket.word);
    return ticket;
  }
  bool is_in_flight(const Ticket& ticket) const { return page().tickets[ticket.index].load() == ticket.word; }
};

struct Sent {
  uintptr_t address;
  driver::SharedMemory memory;
  size_t block_bytes;
  std::vector<Ticket> tickets;
  bool is_released = false;
};

struct Segment {
  int device;
  uintptr_t begin;
  size_t bytes;
  File ledger;  // the sender's, with the locks of the blocks
  struct Block {
    uint64_t bytes;
    uint64_t senders;  // the sender's address of it
    uint64_t asked;    // bytes of it that the sender's storage has
    int num_users;
  };
  std::map<uintptr_t, Block> blocks;
};

// A received block without users, until the work submitted before that has finished.
struct Leaving {
  driver::ShareHandle segment;
  uintptr_t address;
  driver::Driver* driver;
  std::vector<driver::Event> events;
};

// Leaked, as the devices are.
struct All {
  std::mutex mutex;  // never held while the device is waited for or asked
  std::optional<Ledger> ledger;
  std::map<uintptr_t, Sent> sent;
  std::map<driver::ShareHandle, Segment> received;
  std::vector<Leaving> leaving;
};

All& all() {
  static auto* const instance = new All;
  return *instance;
}

// What is received belongs to the program's own devices, also while a dry run is under way.
Runtime& devices() {
  get();
  return *worlds::program();
}

using Guard = std::lock_guard<std::mutex>;

std::atomic<bool> is_used{false};

// With the lock held.
bool is_held(Sent& sent) {
  Ledger& ledger = *all().ledger;
  std::erase_if(sent.tickets, [&](const Ticket& ticket) {
    if (ledger.is_in_flight(ticket)) return false;
    ledger.spare.push_back(ticket);
    return true;
  });
  return !sent.tickets.empty() ||
         is_locked_by_others(ledger.file.descriptor(), sent.address, sent.block_bytes);
}

std::map<driver::ShareHandle, Segment>::iterator segment_of(uintptr_t address) {
  auto& received = all().received;
  auto segment = received.begin();
  while (segment != received.end() && address - segment->second.begin >= segment->second.bytes) ++segment;
  return segment;
}

// With the lock held, when neither a user nor pending work needs the block.
void let_go(const driver::ShareHandle& handle, uintptr_t address) {
  const auto found = all().received.find(handle);
  if (found == all().received.end()) return;
  Segment& segment = found->second;
  const auto block = segment.blocks.find(address);
  if (block == segment.blocks.end() || block->second.num_users != 0) return;  // received again
  unlock_range(segment.ledger.descriptor(), block->second.senders, block->second.bytes);
  segment.blocks.erase(block);
  if (!segment.blocks.empty()) return;
  devices().device(segment.device).driver().deallocate(reinterpret_cast<void*>(segment.begin));
  all().received.erase(found);
}

Handle parsed(const std::string& text) {
  Handle handle{};
  if (text.size() == sizeof handle) std::memcpy(&handle, text.data(), sizeof handle);
  if (std::memcmp(handle.magic, kMagic, sizeof kMagic) != 0 || handle.ticket >= kNumTickets ||
      handle.offset > handle.segment_bytes || handle.block_bytes > handle.segment_bytes - handle.offset ||
      handle.bytes > handle.block_bytes || handle.block_bytes == 0 ||
      handle.block > INT64_MAX - handle.block_bytes || handle.ticket_word % 4 != kInFlight) {
    throw SharingError("this is no handle of shared device memory, or a damaged one (" +
                       std::to_string(text.size()) + " bytes)");
  }
  if (handle.device >= static_cast<uint32_t>(devices().device_count())) {
    throw SharingError("the memory is on device " + std::to_string(handle.device) +
                       " of its sender, and here are " + std::to_string(devices().device_count()) +
                       " devices: give all processes the same (TORCH_LOOM_DEVICES)");
  }
  return handle;
}

// The only moment at which a message counts as received.
void redeem(LedgerPage& page, const Handle& handle) {
  uint64_t word = handle.ticket_word;
  if (page.digests[handle.ticket].load() != digest_of(handle) && page.tickets[handle.ticket].load() == word) {
    throw SharingError("this is a damaged handle of shared device memory");
  }
  if (page.key != handle.key ||
      !page.tickets[handle.ticket].compare_exchange_strong(word, word - kInFlight + kReceived)) {
    throw SharingError("the handle was received before: send the tensor once to each receiver");
  }
}

Received receive_own(const Handle& handle) {
  const Guard guard(all().mutex);
  if (!all().ledger) throw SharingError("the handle names this process, which has sent nothing");
  redeem(all().ledger->page(), handle);
  for (auto& [address, sent] : all().sent) {
    if (sent.memory.offset != handle.offset || sent.memory.handle != handle.segment) continue;
    sent.is_released = false;
    return {reinterpret_cast<void*>(address), handle.bytes, static_cast<int>(handle.device), true};
  }
  throw SharingError("the memory of the handle is there no more");
}

std::map<driver::ShareHandle, Segment>::iterator open_segment(const Handle& handle, File& ledger) {
  const auto known = all().received.find(handle.segment);
  if (known != all().received.end()) {
    if (known->second.bytes == handle.segment_bytes &&
        known->second.device == static_cast<int>(handle.device)) {
      return known;
    }
    throw SharingError("the handle does not agree with earlier ones of the same memory: it was damaged");
  }
  const int index = static_cast<int>(handle.device);
  const Device& device = devices().device(index);
  void* const begin = device.driver().map_shared(device.driver_index, handle.segment, handle.segment_bytes);
  Segment segment{index, reinterpret_cast<uintptr_t>(begin), handle.segment_bytes, std::move(ledger), {}};
  return all().received.emplace(handle.segment, std::move(segment)).first;
}

}  // namespace

std::string send(void* address, size_t bytes) {
  const Runtime& runtime = get();
  const int index = runtime.device_of(address);
  if (index < 0) throw InvalidArgument("only memory of a device can be sent");
  if (is_received(address)) {
    throw SharingError(
        "memory that was received from another process cannot be sent on: send a clone() of it, or let its "
        "owner "
        "send it");
  }
  if (capture::is_underway()) capture::forbid_on_device(index, "sending memory to another process");
  const Device& device = runtime.device(index);
  const size_t block_bytes = device.allocator->block_bytes(address);
  if (block_bytes < bytes || block_bytes == 0) {
    throw InvalidArgument("only whole blocks of the caching allocator can be sent; clone() the tensor");
  }
  for (const driver::Stream stream : device.streams()) {
    untold::drain_stream(device.driver(), stream);
  }
  const driver::SharedMemory memory = device.driver().share(device.driver_index, address);
  if (block_bytes > memory.reach) {
    throw SharingError(
        "the memory lies in several pieces of an expandable segment: send a clone() made with "
        "expandable_segments:False (PYTORCH_ALLOC_CONF)");
  }
  is_used.store(true);
  const Guard guard(all().mutex);
  if (!all().ledger) all().ledger.emplace();
  const auto place = reinterpret_cast<uintptr_t>(address);
  Sent& sent = all().sent.try_emplace(place, Sent{place, memory, block_bytes, {}}).first->second;
  is_held(sent);  // frees the tickets of what was received meanwhile
  const Ticket ticket = all().ledger->issue();
  sent.tickets.push_back(ticket);
  Handle handle{};
  std::memcpy(handle.magic, kMagic, sizeof kMagic);
  handle.key = all().ledger->page().key;
  handle.ledger = name_of(all().ledger->file.descriptor());
  handle.segment = memory.handle;
  handle.segment_bytes = memory.bytes;
  handle.offset = memory.offset;
  handle.block_bytes = block_bytes;
  handle.block = place;
  handle.bytes = bytes;
  handle.ticket_word = ticket.word;
  handle.ticket = ticket.index;
  handle.device = static_cast<uint32_t>(index);
  all().ledger->page().digests[ticket.index].store(digest_of(handle));
  return {reinterpret_cast<const char*>(&handle), sizeof handle};
}

Received receive(const std::string& text) {
  const Handle handle = parsed(text);
  if (handle.ledger.process == getpid()) return receive_own(handle);
  File ledger_file = open_shared_file(handle.ledger);
  const Mapping ledger(ledger_file, sizeof(LedgerPage));
  is_used.store(true);
  const Guard guard(all().mutex);
  const auto segment = open_segment(handle, ledger_file);
  const uintptr_t address = segment->second.begin + handle.offset;
  auto& blocks = segment->second.blocks;
  const auto block = blocks.find(address);
  const bool is_new = block == blocks.end();
  try {
    if (!is_new && block->second.bytes != handle.block_bytes) {
      throw SharingError("the handle does not agree with earlier ones of the same memory: it was damaged");
    }
    // Locked first: once the sender sees the message received, it sees the lock as well.
    if (is_new) {
      lock_range(segment->second.ledger.descriptor(), handle.block, handle.block_bytes);
      blocks.emplace(address, Segment::Block{handle.block_bytes, handle.block, handle.bytes, 0});
    }
    redeem(*static_cast<LedgerPage*>(ledger.address()), handle);
  } catch (...) {
    if (is_new) {
      blocks.emplace(address, Segment::Block{handle.block_bytes, handle.block, handle.bytes, 0});
      let_go(segment->first, address);
    }
    throw;
  }
  Segment::Block& known = blocks.at(address);
  known.asked = std::max(known.asked, handle.bytes);
  ++known.num_users;
  return {reinterpret_cast<void*>(address), handle.bytes, static_cast<int>(handle.device), false};
}

bool is_unused() noexcept { return !is_used.load(std::memory_order_relaxed); }

bool is_received(const void* address) noexcept {
  if (is_unused()) return false;
  const Guard guard(all().mutex);
  return segment_of(reinterpret_cast<uintptr_t>(address)) != all().received.end();
}

std::pair<uintptr_t, size_t> received_around(const void* pointer) noexcept {
  if (is_unused()) return {0, 0};
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  const Guard guard(all().mutex);
  const auto segment = segment_of(address);
  if (segment == all().received.end()) return {0, 0};
  auto block = segment->second.blocks.upper_bound(address);
  if (block == segment->second.blocks.begin()) return {0, 0};
  --block;
  const bool is_inside = address - block->first < block->second.bytes;
  return is_inside ? std::pair(block->first, size_t{block->second.asked})
                   : std::pair(uintptr_t{0}, size_t{0});
}

bool release(void* pointer) {
  if (is_unused()) [[likely]] {
    return false;
  }
  const auto address = reinterpret_cast<uintptr_t>(pointer);
  Leaving leaving{};
  int device = 0;
  {
    const Guard guard(all().mutex);
    const auto segment = segment_of(address);
    if (segment == all().received.end()) {
      const auto sent = all().sent.find(address);
      if (sent == all().sent.end()) return false;
      sent->second.is_released = is_held(sent->second);
      if (sent->second.is_released) return true;
      all().sent.erase(sent);
      return false;
    }
    if (--segment->second.blocks.at(address).num_users != 0) return true;
    leaving.segment = segment->first;
    leaving.address = address;
    device = segment->second.device;
  }
  driver::Driver& driver = devices().device(device).driver();
  leaving.driver = &driver;
  for (const driver::Stream stream : devices().device(device).streams()) {
    if (untold::query_stream(driver, stream)) continue;
    leaving.events.push_back(untold::create_event(driver));
    untold::record_event(driver, leaving.events.back(), stream);
  }
  const Guard guard(all().mutex);
  if (leaving.events.empty()) {
    let_go(leaving.segment, address);
  } else {
    all().leaving.push_back(std::move(leaving));
  }
  return true;
}

bool collect(void (*free)(void* address)) {
  if (is_unused()) return false;
  std::vector<Leaving> leaving;
  std::vector<uintptr_t> unheld;
  {
    const Guard guard(all().mutex);
    leaving.swap(all().leaving);
    for (auto sent = all().sent.begin(); sent != all().sent.end();) {
      const bool is_over = sent->second.is_released && !is_held(sent->second);
      if (is_over) unheld.push_back(sent->first);
      sent = is_over ? all().sent.erase(sent) : std::next(sent);
    }
  }
  for (const uintptr_t address : unheld) free(reinterpret_cast<void*>(address));
  for (Leaving& each : leaving) {
    driver::Driver& driver = *each.driver;
    std::erase_if(each.events, [&](driver::Event event) {
      if (!untold::query_event(driver, event)) return false;
      untold::destroy_event(driver, event);
      return true;
    });
    const Guard guard(all().mutex);
    if (each.events.empty()) {
      let_go(each.segment, each.address);
    } else {
      all().leaving.push_back(std::move(each));
    }
  }
  return !unheld.empty();
}

}  // namespace loom::runtime::shared
