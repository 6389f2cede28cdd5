#include "distributed/symmetric.h"

#include <c10/core/DeviceGuard.h>
#include <c10/util/Exception.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <cstring>
#include <map>
#include <memory>
#include <mutex>
#include <sstream>
#include <torch/csrc/distributed/c10d/GroupRegistry.hpp>
#include <torch/csrc/distributed/c10d/symm_mem/SymmetricMemory.hpp>
#include <utility>
#include <vector>

#include "distributed/operation.h"
#include "distributed/prices.h"
#include "distributed/transport/segment.h"
#include "runtime/blocking.h"
#include "runtime/commands.h"
#include "runtime/ipc/shared_memory.h"
#include "runtime/runtime.h"
#include "runtime/simulated_clock.h"
#include "torch/core/device.h"
#include "torch/memory/allocator.h"
#include "torch/memory/worlds.h"
#include "util/spin.h"
#include "util/waiting.h"

namespace loom::distributed {

namespace {

namespace symmetric = c10d::symmetric_memory;
using Clock = std::chrono::steady_clock;

// When the process began to end: pending signals then have a little time left. 0: not yet.
std::atomic<int64_t> ended_at{0};
constexpr std::chrono::seconds kGrace{3};
constexpr size_t kMostMs = size_t{1} << 40;  // of a timeout, which is counted in nanoseconds
bool has_ended() {
  const int64_t at = ended_at.load();
  return at != 0 && Clock::now() - Clock::time_point(Clock::duration(at)) >= kGrace;
}

char* engine_address(void* address) { return static_cast<char*>(glue::devices().engine_address(address)); }

// Device memory of this process, or of another one.
class Memory {
 public:
  explicit Memory(void* address) : address_(address) {}
  ~Memory() { glue::free_device_memory(address_); }
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;
  char* address() const noexcept { return static_cast<char*>(address_); }

 private:
  void* const address_;
};
using MemoryRef = std::shared_ptr<const Memory>;

// Of an allocation: the user's bytes, the pad of signals behind them, and for each signal when its sender was
// ready, in simulated time.
struct Layout {
  static constexpr size_t kAlignment = 16;
  size_t size = 0, pad_bytes = 0;
  size_t pad_at() const { return (size + kAlignment - 1) / kAlignment * kAlignment; }
  size_t num_signals() const { return pad_bytes / sizeof(uint32_t); }
  size_t times_at() const { return (pad_at() + pad_bytes + kAlignment - 1) / kAlignment * kAlignment; }
  size_t total() const { return times_at() + num_signals() * sizeof(int64_t); }
};

struct Peer {
  MemoryRef memory;
  std::unique_ptr<Process> process;  // null: this one
};

// The memory of all ranks of a group, mapped here; pending signals keep it.
struct Peers {
  int rank = 0;
  Layout layout;
  std::vector<Peer> all;
  struct Signal {
    uint32_t& word;
    int64_t& sent_ns;
  };
  // The pad has one for each channel and rank that signals.
  Signal signal(int of, int channel, int from) const {
    const size_t place = static_cast<size_t>(channel) * all.size() + static_cast<size_t>(from);
    char* const memory = engine_address(all[static_cast<size_t>(of)].memory->address());
    return {reinterpret_cast<uint32_t*>(memory + layout.pad_at())[place],
            reinterpret_cast<int64_t*>(memory + layout.times_at())[place]};
  }
};

// On a stream: sets signals at some ranks, once those are clear, and clears those that some have set here.
struct Signals {
  std::shared_ptr<const Peers> peers;
  std::vector<int> to, from;
  int channel = 0;
  std::chrono::milliseconds timeout{};               // 0: none
  std::shared_ptr<runtime::simulated::Joint> joint;  // null: its time waits for no other rank

  void run() const {
    const auto began = Clock::now();
    const int64_t ready_ns = joint == nullptr ? -1 : joint->ready_ns();
    int64_t latest_ns = -1;
    for (const int peer : to) exchange(peer, /*sends=*/true, ready_ns, began);
    for (const int peer : from) latest_ns = std::max(latest_ns, exchange(peer, /*sends=*/false, -1, began));
    if (joint != nullptr) joint->begin_at(latest_ns);
  }
  // Where it has not run, it waits for no other rank.
  static void release(void* signals) noexcept {
    const auto* const own = static_cast<const Signals*>(signals);
    if (own->joint != nullptr) own->joint->begin_at(-1);
    delete own;
  }

 private:
  // Returns when the sender was ready.
  int64_t exchange(int peer, bool sends, int64_t sent_ns, Clock::time_point began) const {
    const Peers::Signal signal =
        sends ? peers->signal(peer, channel, peers->rank) : peers->signal(peers->rank, channel, peer);
    const std::atomic_ref<uint32_t> word(signal.word);
    const std::atomic_ref<int64_t> time(signal.sent_ns);
    const uint32_t expected = sends ? 0 : 1;
    uint32_t found = 0;
    const auto is_done = [&] {
      found = word.load(std::memory_order_acquire);
      if (found != expected) return false;
      // The time is the sender's while the signal is clear, and the receiver's while it is set.
      if (sends) {
        time.store(sent_ns, std::memory_order_relaxed);
      } else {
        sent_ns = time.load(std::memory_order_relaxed);
      }
      return word.compare_exchange_strong(found, 1 - expected, std::memory_order_acq_rel);
    };
    // Kernels of programs set signals, too, and wake no rank.
    constexpr std::chrono::milliseconds kLongest{1};
    while (!driver::spin_until(is_done)) {
      const std::string who = "rank " + std::to_string(peers->rank) + " waits for rank " +
                              std::to_string(peer) + " to " + (sends ? "take" : "send") +
                              " a signal of symmetric memory on channel " + std::to_string(channel);
      if (has_ended()) throw Error(who + ", and its process ends");
      const auto& process = peers->all[static_cast<size_t>(peer)].process;
      if (process != nullptr && process->has_ended() && !is_done()) throw Error(who + ", which has ended");
      if (timeout.count() != 0 && Clock::now() - began >= timeout) {
        throw Error(who + ": none came within " + std::to_string(timeout.count()) + " ms");
      }
      sleep_on_shared(&signal.word, found, kLongest);
    }
    wake_all_sharing(&signal.word);
    return sent_ns;
  }
};

class OwnMemory final : public symmetric::SymmetricMemory {
 public:
  OwnMemory(std::shared_ptr<const Peers> peers, c10::Device device)
      : peers_(std::move(peers)), device_(device) {
    const size_t n = peers_->all.size();
    for (const Peer& peer : peers_->all) {
      buffers_.push_back(peer.memory->address());
      pads_.push_back(peer.memory->address() + peers_->layout.pad_at());
    }
    table_ = glue::device_allocator()->allocate(2 * n * sizeof(void*));
    char* const table = engine_address(table_.get());
    std::memcpy(table, buffers_.data(), n * sizeof(void*));
    std::memcpy(table + n * sizeof(void*), pads_.data(), n * sizeof(void*));
  }

  std::vector<void*> get_buffer_ptrs() override { return buffers_; }
  std::vector<void*> get_signal_pad_ptrs() override { return pads_; }
  void** get_buffer_ptrs_dev() override { return static_cast<void**>(table_.get()); }
  void** get_signal_pad_ptrs_dev() override { return get_buffer_ptrs_dev() + buffers_.size(); }
  size_t get_buffer_size() override { return peers_->layout.size; }
  size_t get_offset() override { return 0; }
  bool has_multicast_support() override { return false; }
  void* get_multicast_ptr() override { return nullptr; }
  int get_rank() override { return peers_->rank; }
  int get_world_size() override { return static_cast<int>(peers_->all.size()); }
  c10::Device get_device() override { return device_; }
  bool world_within_direct_access() override { return true; }

  void barrier(int channel, size_t timeout_ms) override {
    std::vector<int> others;
    for (int rank = 0; rank < get_world_size(); ++rank) {
      if (rank != get_rank()) others.push_back(rank);
    }
    submit("symmetric_memory:barrier", others, others, channel, timeout_ms);
  }
  void put_signal(int to, int channel, size_t timeout_ms) override {
    submit("symmetric_memory:put_signal", {to}, {}, channel, timeout_ms);
  }
  void wait_signal(int from, int channel, size_t timeout_ms) override {
    submit("symmetric_memory:wait_signal", {}, {from}, channel, timeout_ms);
  }

 private:
  void submit(const char* name, std::vector<int> to, std::vector<int> from, int channel, size_t timeout_ms) {
    const int n = get_world_size();
    for (const std::vector<int>* const ranks : {&to, &from}) {
      for (const int rank : *ranks) {
        TORCH_CHECK_VALUE(rank >= 0 && rank < n, name, ": the rank must be 0 to ", n - 1, ", got ", rank);
      }
    }
    const size_t num_channels = peers_->layout.num_signals() / static_cast<size_t>(n);
    TORCH_CHECK_VALUE(channel >= 0 && static_cast<size_t>(channel) < num_channels, name,
                      ": the channel must be at least 0 and below ", num_channels,
                      ", as many as the signal pad has, got ", channel);
    Operation operation;
    Ranks ranks;
    for (int rank = 0; rank < n; ++rank) ranks.push_back(rank);
    const int device = device_.index();
    const int64_t nanoseconds = cost_of(device, operation, n, layout_of(ranks));
    const runtime::StreamRef stream = runtime::current_stream_of(device);
    auto signals =
        std::make_unique<Signals>(Signals{peers_, std::move(to), std::move(from), channel,
                                          std::chrono::milliseconds(std::min(timeout_ms, kMostMs)), nullptr});
    // Each replay of a graph has a time of its own.
    if (!runtime::is_captured(stream))
      signals->joint = runtime::simulated::join(device, stream.id, nanoseconds);
    const runtime::simulated::Said said(nanoseconds, signals->joint != nullptr);
    const driver::Kernel kernel{name,
                                [](void* own, driver::Stream) { static_cast<const Signals*>(own)->run(); },
                                &Signals::release, signals.release()};
    // Where the host would run it, it would wait for other ranks there.
    glue::translated([&] { runtime::submit_aside(stream, kernel); });
  }

  const std::shared_ptr<const Peers> peers_;
  const c10::Device device_;
  std::vector<void*> buffers_, pads_;
  c10::DataPtr table_;
};

class OwnAllocator final : public symmetric::SymmetricMemoryAllocator {
 public:
  void* alloc(size_t size, int given, const std::optional<std::string>& group) override {
    const int device = given < 0 ? runtime::current_device() : given;
    const c10::DeviceGuard guard(c10::Device(glue::device_type(), static_cast<c10::DeviceIndex>(device)));
    const Layout layout{size, symmetric::get_signal_pad_size()};
    auto memory = std::make_shared<const Memory>(
        glue::take_device_memory(glue::devices().device(device), layout.total()));
    glue::translated([&] {
      runtime::fill(runtime::current_stream_of(device), memory->address() + layout.pad_at(), 0,
                    layout.total() - layout.pad_at());
    });
    const std::lock_guard<std::mutex> lock(mutex_);
    blocks_[memory->address()] = {memory, layout, device, group, {}};
    return memory->address();
  }

  void free(void* address) override {
    Block block;
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(address);
    if (found == blocks_.end()) return;
    block = std::move(found->second);
    blocks_.erase(found);
  }

  size_t get_alloc_size(void* address) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    const auto found = blocks_.find(address);
    TORCH_CHECK(found != blocks_.end(), address, " was not allocated as symmetric memory");
    return found->second.layout.size;
  }

  bool has_allocation(void* address) override {
    const std::lock_guard<std::mutex> lock(mutex_);
    return blocks_.find(address) != blocks_.end();
  }

  c10::intrusive_ptr<symmetric::SymmetricMemory> rendezvous(
      void* address, const std::optional<std::string>& given) override {
    Block block;
    std::string group;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      const auto found = blocks_.find(address);
      if (found == blocks_.end()) return nullptr;
      block = found->second;
      TORCH_CHECK_VALUE(given.has_value() || block.group.has_value(),
                        "rendezvous(): name the group, there or where the memory is allocated");
      group = given.has_value() ? *given : *block.group;
      if (const auto known = block.known.find(group); known != block.known.end()) return known->second;
    }
    const c10::Device device(glue::device_type(), static_cast<c10::DeviceIndex>(block.device));
    const c10::DeviceGuard guard(device);
    std::shared_ptr<const Peers> peers;
    runtime::call_blocking([&] { peers = meet(block, group); });
    auto made = c10::make_intrusive<OwnMemory>(std::move(peers), device);
    const std::lock_guard<std::mutex> lock(mutex_);
    // Another thread may have freed it meanwhile.
    if (const auto found = blocks_.find(address); found != blocks_.end()) found->second.known[group] = made;
    return made;
  }

  bool has_multicast_support(int) override { return false; }
  c10::DeviceType supported_device_type() override { return glue::device_type(); }
  std::string name() override { return glue::device_name_upper(); }

 private:
  struct Block {
    MemoryRef memory;
    Layout layout;
    int device = 0;
    std::optional<std::string> group;
    std::map<std::string, c10::intrusive_ptr<symmetric::SymmetricMemory>> known;  // by group
  };

  static symmetric::GroupInfo info_of(const std::string& group) {
    c10::intrusive_ptr<c10d::ProcessGroup> found;
    try {
      found = c10d::resolve_process_group(group);
    } catch (const c10::Error&) {
      return symmetric::get_group_info(group);  // one that the program has described itself
    }
    return {found->getRank(), found->getSize(), found->getStore()};
  }

  // Ranks exchange in the group's store what they allow each other to map.
  std::shared_ptr<const Peers> meet(const Block& block, const std::string& group) {
    TORCH_CHECK_NOT_IMPLEMENTED(runtime::detail::world.load() == 0,
                                "symmetric memory is shared between real ranks, and not in a dry run");
    const symmetric::GroupInfo info = info_of(group);
    std::string prefix;
    {
      const std::lock_guard<std::mutex> lock(mutex_);
      prefix = "loom/symmetric/" + group + "/" + std::to_string(num_met_[group]++) + "/";
    }
    const std::string machine = machine_name();
    auto peers = std::make_shared<Peers>();
    peers->rank = info.rank;
    peers->layout = block.layout;
    peers->all.resize(static_cast<size_t>(info.world_size));
    const auto key = [&](int from, int to) {
      return prefix + std::to_string(from) + ">" + std::to_string(to);
    };
    for (int peer = 0; peer < info.world_size; ++peer) {
      if (peer == info.rank) continue;
      const std::string handle = glue::translated(
          [&] { return runtime::shared::send(block.memory->address(), block.layout.total()); });
      std::ostringstream text;
      text << machine << ' ' << getpid() << ' ' << block.layout.size << ' ' << block.layout.pad_bytes << '\n'
           << handle;
      const std::string told = text.str();
      info.store->set(key(info.rank, peer), std::vector<uint8_t>(told.begin(), told.end()));
    }
    for (int peer = 0; peer < info.world_size; ++peer) {
      Peer& other = peers->all[static_cast<size_t>(peer)];
      if (peer == info.rank) {
        other.memory = block.memory;
        continue;
      }
      const std::vector<uint8_t> told = info.store->get(key(peer, info.rank));
      const std::string text(told.begin(), told.end());
      const size_t end = text.find('\n');
      std::istringstream words(text.substr(0, end));
      std::string its_machine;
      int process = 0;
      Layout layout;
      words >> its_machine >> process >> layout.size >> layout.pad_bytes;
      TORCH_CHECK(!words.fail() && end != std::string::npos, "rendezvous(): rank ", peer,
                  " has sent something else than its memory");
      TORCH_CHECK(its_machine == machine, "rendezvous(): rank ", peer, " is on another machine than rank ",
                  info.rank, ": symmetric memory joins ranks of one machine. Use a group of those");
      TORCH_CHECK_VALUE(layout.size == block.layout.size && layout.pad_bytes == block.layout.pad_bytes,
                        "rendezvous(): rank ", peer, " has ", layout.size, " bytes and a signal pad of ",
                        layout.pad_bytes, ", rank ", info.rank, " ", block.layout.size, " and ",
                        block.layout.pad_bytes, ": all ranks must allocate the same");
      const runtime::shared::Received received =
          glue::translated([&] { return runtime::shared::receive(text.substr(end + 1)); });
      other.memory = std::make_shared<const Memory>(received.address);
      if (process != getpid()) other.process = std::make_unique<Process>(process);
    }
    // No rank frees its memory or ends before all have received it.
    std::vector<std::string> all_received;
    for (int rank = 0; rank < info.world_size; ++rank) all_received.push_back(key(rank, -1));
    info.store->set(key(info.rank, -1), std::vector<uint8_t>{1});
    info.store->wait(all_received);
    return peers;
  }

  std::mutex mutex_;
  std::map<void*, Block> blocks_;
  std::map<std::string, int> num_met_;  // by group
};

}  // namespace

void provide_symmetric_memory() {
  const auto allocator = c10::make_intrusive<OwnAllocator>();
  symmetric::register_availability(allocator->name(), allocator);
  symmetric::register_allocator(glue::device_type(), allocator);
}

void end_signals() noexcept { ended_at = Clock::now().time_since_epoch().count(); }

}  // namespace loom::distributed
