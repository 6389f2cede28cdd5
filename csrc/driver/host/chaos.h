// Streams without workers that run late, early and in any order that the recorded waits allow, drawn from a
// seed: a missing wait shows, and shows again with the same seed.
#pragma once

#include <condition_variable>
#include <cstdint>
#include <deque>
#include <functional>
#include <mutex>
#include <random>
#include <vector>

#include "driver/host/host_stream.h"

namespace loom::driver {

class ChaosStream;

// Draws which stream's next command runs. Each stream has a temper, and tempers change now and then, so that
// long stretches of "as late as possible" and "as early as possible" occur beside plain random orders: most
// ordering bugs need one of the two, which a fair coin per command all but excludes.
class Chaos {
 public:
  explicit Chaos(uint64_t seed) : random_(seed) {}

  HostStream* create_stream(StreamActivity* activity);
  // Starts again with a seed: what follows is ordered as in a process that begins with it. All streams are
  // idle, or it throws InvalidArgument.
  void restart(uint64_t seed);
  void wait(const Version& version);
  // May run one step, so that polling makes progress.
  void ask();

 private:
  friend class ChaosStream;
  using Lock = std::unique_lock<std::mutex>;
  enum class Temper { kEager, kFair, kLazy };

  // A number in 0 … bound − 1. Not std::uniform_int_distribution, whose numbers differ between libraries.
  uint64_t draw(uint64_t bound) { return random_() % bound; }
  Temper draw_temper() { return static_cast<Temper>(draw(3)); }
  void change_tempers();
  // Runs what the tempers say should run when something was submitted.
  void run_some(Lock& lock);
  // Runs commands until `done()`, which is called under the lock.
  void run_until(Lock& lock, const std::function<bool()>& done);
  std::vector<ChaosStream*> ready_streams(bool lazy_too);
  void step(Lock& lock, ChaosStream& stream);

  std::mutex mutex_;
  std::condition_variable changed_;
  std::mt19937_64 random_;
  // Those that have been used since the seed was set, in the order of their first use: how many others there
  // are does not change an order.
  std::vector<ChaosStream*> streams_;
};

class ChaosStream final : public HostStream {
 public:
  ChaosStream(Chaos& chaos, StreamActivity* activity) : HostStream(activity), chaos_(chaos) {}
  // Requires that nothing is pending and that no other thread uses the stream.
  ~ChaosStream() override;

  void submit(const Kernel& kernel) override;
  Version::Shared mark() override;
  void wait_for(const Version::Shared& version) override;
  bool idle() noexcept override;
  bool runs_in_place() noexcept override { return is_mine(); }
  Failures drain() override;

 private:
  friend class Chaos;
  static constexpr size_t kMaxQueued = 1024;

  void submit_in_turn(OwnedKernel& kernel);
  bool is_ready() const noexcept;
  void push(Command::Kind kind, OwnedKernel kernel, Version::Shared version);

  Chaos& chaos_;
  // Under the mutex of chaos_.
  Chaos::Temper temper_ = Chaos::Temper::kFair;
  bool is_used_ = false;  // it is among the streams of chaos_
  std::deque<Command> queue_;
  bool running_ = false;  // a thread executes the command that was taken from the queue
};

}  // namespace loom::driver
