#include "distributed/collectives.h"

#include <algorithm>
#include <cstring>
#include <thread>

#include "distributed/transport/reduction.h"
#include "driver/error.h"

namespace loom::distributed {

namespace {

// Bytes that all ranks show each other in one round, whatever the collective.
constexpr size_t kSmall = size_t{64} << 10;

size_t num_chunks(size_t bytes, size_t chunk) { return (bytes + chunk - 1) / chunk; }

Bytes part_of(const Bytes& whole, size_t chunk, size_t number) {
  const size_t begin = std::min(whole.size, chunk * number);
  return {whole.data + begin, std::min(chunk, whole.size - begin)};
}

void copy(char* to, const char* from, size_t bytes) {
  if (bytes != 0 && to != from) std::memcpy(to, from, bytes);
}

// What does not belong together.
void refuse(Transport& transport, const Rules& rules, const std::string& reason) {
  if (rules.checks) throw Error(reason);
  // As NCCL: nothing happens any more.
  while (!transport.has_failed() && Transport::Clock::now() < rules.deadline) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  if (transport.has_failed()) throw Error(transport.failure());
  throw TimedOut(reason);
}

class Run {
 public:
  Run(Transport& transport, const Task& task, const Rules& rules, std::optional<uint64_t> shown = {})
      : transport_(transport),
        task_(task),
        rules_(rules),
        rank_(transport.rank()),
        num_ranks_(transport.num_ranks()),
        shown_(shown) {}

  void run();
  // Posts the first round, and goes no further.
  uint64_t show_first() {
    only_shows_ = true;
    run();
    return *shown_;
  }
  int64_t latest_ns() const noexcept { return latest_ns_; }

 private:
  static constexpr size_t kChunk = Slot::kDataBytes;

  // Shows and takes, round after round. `show(slot, number)` writes what this rank shows
  // and returns its bytes, `take(peer, data,
  // number)` reads what a peer shows; `count(operations)` says how many rounds there are.
  template <typename Show, typename Take, typename Count>
  void rounds(Show show, Take take, Count count);
  void check(std::span<const Operation> operations);

  void share();     // all see what a rank gives
  void exchange();  // each rank has a piece for each
  void reduce_shared();
  void reduce_in_two();  // each rank reduces a part, which all see then
  void reduce_scatter();

  // Reduces what ranks show in their order, into `result`.
  void accumulate(int peer, const char* data, size_t bytes, char* result);
  void show_scaled(char* slot, const Bytes& part) const;
  bool is_scaled() const {
    return reduction() == Reduction::kScaledSum ||
           (reduction() == Reduction::kAverage && c10::isFloatingType(task_.dtype));
  }
  double factor() const { return reduction() == Reduction::kAverage ? 1.0 / num_ranks_ : task_.factor; }
  Reduction reduction() const { return task_.operation.reduction; }
  bool is_root() const { return task_.operation.root == rank_; }

  Transport& transport_;
  const Task& task_;
  const Rules& rules_;
  const int rank_, num_ranks_;
  std::optional<uint64_t> shown_;  // the first round, once it is posted
  bool only_shows_ = false, is_checked_ = false;
  int64_t latest_ns_ = -1;
  std::vector<char> sum_;
};

template <typename Show, typename Take, typename Count>
void Run::rounds(Show show, Take take, Count count) {
  if (!shown_.has_value()) {
    std::memcpy(transport_.next_slot().header, &task_.operation, sizeof(Operation));
    shown_ = transport_.post(show(transport_.next_slot().data, size_t{0}));
  }
  if (only_shows_) return;
  uint64_t round = *shown_;
  std::vector<Operation> operations(static_cast<size_t>(num_ranks_));
  for (int peer = 0; peer < num_ranks_; ++peer) {
    const Slot& slot = transport_.await(peer, round, rules_.deadline);
    std::memcpy(&operations[static_cast<size_t>(peer)], slot.header, sizeof(Operation));
  }
  if (!is_checked_) check(operations);
  for (const Operation& each : operations) latest_ns_ = std::max(latest_ns_, each.ready_ns);
  const size_t num_rounds = count(std::span<const Operation>(operations));
  for (size_t number = 0; number < num_rounds; ++number) {
    const uint64_t taken = round;
    if (number + 1 < num_rounds) {
      round = transport_.post(show(transport_.next_slot().data, number + 1));
    }
    for (int peer = 0; peer < num_ranks_; ++peer) {
      take(peer, transport_.await(peer, taken, rules_.deadline).data, number);
    }
    if (number + 1 < num_rounds) {
      for (int peer = 0; peer < num_ranks_; ++peer) transport_.await(peer, round, rules_.deadline);
    }
  }
}

void Run::check(std::span<const Operation> operations) {
  for (size_t rank = 1; rules_.one_device_each && rank < operations.size(); ++rank) {
    for (size_t other = 0; other < rank; ++other) {
      if (operations[rank].machine != operations[other].machine) continue;
      if (operations[rank].device != operations[other].device) continue;
      throw Error(duplicate_device(static_cast<int>(rank), static_cast<int>(other), operations[rank].device));
    }
  }
  const std::string reason = mismatch(operations);
  if (!reason.empty()) refuse(transport_, rules_, reason);
  is_checked_ = true;
}

void Run::show_scaled(char* slot, const Bytes& part) const {
  copy(slot, part.data, part.size);
  if (is_scaled()) scale(task_.dtype, slot, part.size, factor());
}

void Run::accumulate(int peer, const char* data, size_t bytes, char* result) {
  if (sum_.size() < bytes) sum_.resize(bytes);
  if (peer == 0) {
    copy(sum_.data(), data, bytes);
  } else {
    combine(reduction(), task_.dtype, sum_.data(), data, bytes);
  }
  if (peer + 1 < num_ranks_) return;
  if (reduction() == Reduction::kAverage && !is_scaled()) divide(task_.dtype, sum_.data(), bytes, num_ranks_);
  copy(result, sum_.data(), bytes);
}

void Run::share() {
  const Bytes given = task_.gives.empty() ? Bytes{} : task_.gives[0];
  const auto show = [&](char* slot, size_t number) {
    const Bytes part = part_of(given, kChunk, number);
    copy(slot, part.data, part.size);
    return part.size;
  };
  const auto take = [&](int peer, const char* data, size_t number) {
    const bool is_list = task_.takes.size() > 1 || task_.operation.root < 0;
    const auto place = is_list                        ? static_cast<size_t>(peer)
                       : peer == task_.operation.root ? 0
                                                      : task_.takes.size();
    if (place >= task_.takes.size()) return;
    const Bytes part = part_of(task_.takes[place], kChunk, number);
    copy(part.data, peer == rank_ ? part_of(given, kChunk, number).data : data, part.size);
  };
  rounds(show, take, [&](std::span<const Operation> operations) {
    size_t most = 0;
    for (size_t peer = 0; peer < operations.size(); ++peer) {
      most = std::max<size_t>(most, operations[peer].bytes);
      const bool is_list = task_.takes.size() > 1;
      if (is_list && operations[peer].bytes != task_.takes[peer].size) {
        refuse(transport_, rules_,
               "rank " + std::to_string(peer) + " gives " + std::to_string(operations[peer].bytes) +
                   " bytes, for which rank " + std::to_string(rank_) + " has a tensor of " +
                   std::to_string(task_.takes[peer].size) + " bytes: " + task_.operation.text());
      }
    }
    return num_chunks(most, kChunk);
  });
}

void Run::exchange() {
  const auto n = static_cast<size_t>(num_ranks_);
  const size_t table = n * sizeof(uint64_t), chunk = (kChunk - table) / n / 64 * 64;
  const auto show = [&](char* slot, size_t number) {
    size_t end = table;
    for (size_t peer = 0; peer < n; ++peer) {
      const Bytes piece = task_.gives.empty() ? Bytes{} : task_.gives[peer];
      const uint64_t size = piece.size;
      std::memcpy(slot + peer * sizeof size, &size, sizeof size);
      const Bytes part = part_of(piece, chunk, number);
      if (static_cast<int>(peer) == rank_ || part.size == 0) continue;
      show_scaled(slot + table + peer * chunk, part);
      end = table + peer * chunk + part.size;
    }
    return end;
  };
  const bool is_reduced = reduction() != Reduction::kNone;
  std::vector<char> own;
  const auto take = [&](int peer, const char* data, size_t number) {
    const bool has_piece = task_.operation.root < 0 || peer == task_.operation.root;
    if (!has_piece) return;
    const Bytes& whole = task_.takes[task_.takes.size() == 1 ? 0 : static_cast<size_t>(peer)];
    uint64_t size;
    std::memcpy(&size, data + static_cast<size_t>(rank_) * sizeof size, sizeof size);
    if (number == 0 && size != whole.size) {
      refuse(transport_, rules_,
             "rank " + std::to_string(peer) + " gives " + std::to_string(size) + " bytes to rank " +
                 std::to_string(rank_) + ", which takes " + std::to_string(whole.size) +
                 " bytes: " + task_.operation.text());
    }
    const Bytes to = part_of(whole, chunk, number);
    const char* from = data + table + static_cast<size_t>(rank_) * chunk;
    if (peer == rank_) {
      from = part_of(task_.gives[static_cast<size_t>(rank_)], chunk, number).data;
      if (is_scaled()) {
        own.resize(chunk);
        show_scaled(own.data(), {const_cast<char*>(from), to.size});
        from = own.data();
      }
    }
    if (is_reduced) {
      accumulate(peer, from, to.size, to.data);
    } else {
      copy(to.data, from, to.size);
    }
  };
  rounds(show, take, [&](std::span<const Operation> operations) {
    size_t most = 0;
    for (const Operation& each : operations) most = std::max<size_t>(most, each.piece_bytes);
    // The sizes of pieces are compared in the first round.
    return std::max<size_t>(num_chunks(most, chunk), 1);
  });
}

void Run::reduce_shared() {
  const Bytes given = task_.gives[0];
  const Bytes taken = task_.takes.empty() ? Bytes{} : task_.takes[0];
  const bool is_kept = task_.operation.root < 0 || is_root();
  // Of two operands the order does not matter.
  const bool is_direct = num_ranks_ == 2 && !is_scaled() && taken.data == given.data;
  const auto show = [&](char* slot, size_t number) {
    const Bytes part = part_of(given, kChunk, number);
    show_scaled(slot, part);
    return part.size;
  };
  const auto take = [&](int peer, const char* data, size_t number) {
    if (!is_kept) return;
    const Bytes part = part_of(taken, kChunk, number);
    if (!is_direct) {
      accumulate(peer, data, part.size, part.data);
    } else if (peer != rank_) {
      combine(reduction(), task_.dtype, part.data, data, part.size);
      if (reduction() == Reduction::kAverage) divide(task_.dtype, part.data, part.size, num_ranks_);
    }
  };
  rounds(show, take, [&](std::span<const Operation>) { return num_chunks(given.size, kChunk); });
}

void Run::reduce_in_two() {
  const auto n = static_cast<size_t>(num_ranks_);
  const Bytes whole = task_.takes[0];
  const size_t share = num_chunks(num_chunks(whole.size, n), 64) * 64;
  Task scattered = task_, gathered = task_;
  scattered.gives.clear();
  for (size_t peer = 0; peer < n; ++peer) scattered.gives.push_back(part_of(whole, share, peer));
  const Bytes mine = scattered.gives[static_cast<size_t>(rank_)];
  scattered.takes = {mine};
  scattered.operation.piece_bytes = share;
  Run first(transport_, scattered, rules_);
  first.exchange();
  gathered.operation.reduction = Reduction::kNone;
  gathered.gives = {mine};
  gathered.takes = scattered.gives;
  gathered.operation.bytes = mine.size;
  Run second(transport_, gathered, rules_);
  second.is_checked_ = true;
  second.share();
}

void Run::run() {
  switch (task_.operation.kind) {
    case Kind::kBroadcast:
    case Kind::kAllGather:
    case Kind::kGather:
    case Kind::kBarrier:
      return share();
    case Kind::kReduce:
      return reduce_shared();
    case Kind::kAllReduce:
      return num_ranks_ <= 2 || task_.operation.bytes <= kSmall ? reduce_shared() : reduce_in_two();
    default:
      return exchange();
  }
}

std::string message_text(const Operation& operation, int rank) {
  return "rank " + std::to_string(rank) + " called " + operation.text();
}

}  // namespace

int64_t run_collective(Transport& transport, const Task& task, const Rules& rules,
                       std::optional<uint64_t> shown) {
  Run run(transport, task, rules, shown);
  run.run();
  return run.latest_ns();
}

std::optional<uint64_t> show_first(Transport& transport, const Task& task) {
  if (task.operation.bytes > kSmall) return {};
  return Run(transport, task, {}).show_first();
}

bool can_end_now(Transport& transport, uint64_t round) {
  const int num_ranks = transport.num_ranks();
  for (int rank = 0; rank < num_ranks; ++rank) {
    if (!transport.has_posted(rank, round)) return false;
  }
  std::vector<Operation> operations(static_cast<size_t>(num_ranks));
  for (int rank = 0; rank < num_ranks; ++rank) {
    Operation& operation = operations[static_cast<size_t>(rank)];
    std::memcpy(&operation, transport.slot(rank, round).header, sizeof operation);
    const bool is_small =
        operation.bytes <= kSmall && operation.piece_bytes <= kSmall / static_cast<size_t>(num_ranks);
    if (!is_small) return false;
  }
  return mismatch(operations).empty();
}

bool can_move_now(Transport& transport, std::span<const Task> tasks) {
  return std::all_of(tasks.begin(), tasks.end(), [&](const Task& task) {
    const Operation& own = task.operation;
    const bool is_sent = own.kind == Kind::kSend;
    const auto is_same = [&](const Task& other) {
      return other.operation.kind == own.kind && other.operation.root == own.root;
    };
    if (std::count_if(tasks.begin(), tasks.end(), is_same) != 1) return false;
    if (transport.movable(own.root, is_sent) < size_of_message(task)) return false;
    if (is_sent) return true;
    Operation header;
    transport.peek(own.root, reinterpret_cast<char*>(&header), sizeof header);
    return header.dtype == own.dtype && header.numel == own.numel;
  });
}

int64_t run_messages(Transport& transport, std::span<const Task> tasks, const Rules& rules) {
  int64_t latest_ns = -1;
  std::vector<Operation> headers(tasks.size());
  std::vector<Transport::Transfer> transfers;
  transfers.reserve(2 * tasks.size());
  for (size_t i = 0; i < tasks.size(); ++i) {
    const Task& task = tasks[i];
    const bool is_sent = task.operation.kind == Kind::kSend;
    const int peer = task.operation.root;
    const Bytes bytes = is_sent ? task.gives[0] : task.takes[0];
    headers[i] = task.operation;
    Operation& header = headers[i];
    transfers.push_back({peer, is_sent, reinterpret_cast<char*>(&header), sizeof header});
    if (!is_sent) {
      transfers.back().then = [&transport, &task, &header, &rules, &latest_ns, peer] {
        latest_ns = std::max(latest_ns, header.ready_ns);
        const Operation& own = task.operation;
        if (header.dtype == own.dtype && header.numel == own.numel) return;
        refuse(transport, rules,
               "a message does not fit: " + message_text(header, peer) + ", " +
                   message_text(own, transport.rank()) + ". Both need the same dtype and number of elements");
      };
    }
    transfers.push_back({peer, is_sent, bytes.data, bytes.size});
  }
  transport.move(transfers, rules.deadline);
  return latest_ns;
}

}  // namespace loom::distributed
