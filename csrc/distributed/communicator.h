// The backend of torch.distributed for these devices. A collective is a command on a stream of the
// communicator, which waits for the current stream when it is called; the call returns at once, and waiting
// for its Work makes the current stream wait.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/Stream.h>

#include <atomic>
#include <chrono>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <torch/csrc/distributed/c10d/Backend.hpp>
#include <torch/csrc/distributed/c10d/Store.hpp>
#include <vector>

#include "distributed/collectives.h"
#include "distributed/desync.h"
#include "distributed/extra_time.h"
#include "distributed/issue.h"
#include "distributed/prices.h"
#include "distributed/recorder.h"
#include "distributed/watchdog.h"
#include "runtime/commands.h"

namespace loom::distributed {

// What ncclConfig_t has: kept, and without effect.
struct NcclConfig {
  int blocking = -1, cga_cluster_size = -1, min_ctas = -1, max_ctas = -1, split_share = -1,
      traffic_class = -1, collnet_enable = -1, cta_policy = -1, shrink_share = -1, nvls_ctas = -1,
      n_channels_per_net_peer = -1, nvlink_centric_sched = -1;
  std::string net_name;
};

struct GroupOptions : c10d::Backend::Options {
  explicit GroupOptions(std::string backend, std::chrono::milliseconds timeout)
      : c10d::Backend::Options(std::move(backend), timeout) {}
  NcclConfig config;
  bool is_high_priority_stream = false;
  int64_t split_color = 0;
  // A group that this one is a part of, as new_group() says; it counts that.
  c10::intrusive_ptr<c10d::Backend> split_from;
};

struct Command;
class OwnWork;

// What commands share with the communicator, and outlives it.
struct Shared {
  Shared(const c10::intrusive_ptr<c10d::Store>& store, int rank, int num_ranks)
      : transport(store, rank, num_ranks), machine(std::hash<std::string>{}(machine_name())) {
    if (watchdog.reports_desync) desync = std::make_unique<DesyncTrace>(store, rank, num_ranks);
  }
  const Watchdog watchdog = read_watchdog();
  Transport transport;
  const uint64_t machine;
  std::string name;
  // Commands under way, not those that a graph keeps; calls of the hook that are to come.
  std::atomic<int64_t> num_pending{0}, num_hook_calls{0};
  std::atomic<bool> has_timed_out{false};
  std::atomic<bool> checks_for_nan{watchdog.finds_nan};
  std::atomic<bool> is_timed{watchdog.is_timed || watchdog.reports_desync};
  ExtraTime extra_time;
  std::unique_ptr<DesyncTrace> desync;  // null: it is not asked for
};

class Communicator final : public c10d::Backend {
 public:
  Communicator(c10::intrusive_ptr<c10d::Store> store, int rank, int size,
               c10::intrusive_ptr<GroupOptions> options);
  ~Communicator() override;

  template <typename T>
  using Ptr = c10::intrusive_ptr<T>;
  using WorkPtr = Ptr<c10d::Work>;
  using Tensors = std::vector<at::Tensor>;
  using Lists = std::vector<Tensors>;

  const std::string getBackendName() const override { return options_->backend; }
  Ptr<c10d::Backend::Options> getBackendOptions() override { return options_; }
  const Ptr<GroupOptions>& options() const noexcept { return options_; }
  bool supportsSplitting() const override { return true; }
  bool supportsCoalescing() const override { return true; }
  void startCoalescing() override;
  WorkPtr endCoalescing() override;

  WorkPtr broadcast(Tensors& tensors, const c10d::BroadcastOptions& options) override;
  WorkPtr allreduce(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_sparse(Tensors& tensors, const c10d::AllreduceOptions& options) override;
  WorkPtr allreduce_coalesced(Tensors& tensors, const c10d::AllreduceCoalescedOptions& options) override;
  WorkPtr reduce(Tensors& tensors, const c10d::ReduceOptions& options) override;
  WorkPtr allgather(Lists& outputs, Tensors& inputs, const c10d::AllgatherOptions& options) override;
  WorkPtr _allgather_base(at::Tensor& output, at::Tensor& input,
                          const c10d::AllgatherOptions& options) override;
  WorkPtr allgather_into_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::AllgatherOptions& options) override;
  WorkPtr gather(Lists& outputs, Tensors& inputs, const c10d::GatherOptions& options) override;
  WorkPtr scatter(Tensors& outputs, Lists& inputs, const c10d::ScatterOptions& options) override;
  WorkPtr reduce_scatter(Tensors& outputs, Lists& inputs, const c10d::ReduceScatterOptions& options) override;
  WorkPtr _reduce_scatter_base(at::Tensor& output, at::Tensor& input,
                               const c10d::ReduceScatterOptions& options) override;
  WorkPtr reduce_scatter_tensor_coalesced(Tensors& outputs, Tensors& inputs,
                                          const c10d::ReduceScatterOptions& options) override;
  WorkPtr alltoall_base(at::Tensor& output, at::Tensor& input, std::vector<int64_t>& output_sizes,
                        std::vector<int64_t>& input_sizes, const c10d::AllToAllOptions& options) override;
  WorkPtr alltoall(Tensors& outputs, Tensors& inputs, const c10d::AllToAllOptions& options) override;
  WorkPtr send(Tensors& tensors, int peer, int tag) override;
  WorkPtr recv(Tensors& tensors, int peer, int tag) override;
  WorkPtr recvAnysource(Tensors& tensors, int tag) override;
  WorkPtr barrier(const c10d::BarrierOptions& options) override;

  // Null for a rank that is not in the part.
  Ptr<c10d::Backend> split(const Ptr<c10d::Store>& store, const std::vector<int>& ranks,
                           const Ptr<c10d::Backend::Options>& options) override;
  void count_split() noexcept { num_splits_.fetch_add(1); }
  int64_t num_splits() const noexcept { return num_splits_.load(); }

  void setTimeout(std::chrono::milliseconds timeout) override;
  void add_extra_time(std::chrono::milliseconds time) { shared_->extra_time.add(time); }
  // Called in a thread of its own when a work has ended; one that raises aborts the communicator.
  using Hook = std::function<void(std::shared_ptr<c10d::WorkInfo>)>;
  void registerOnCompletionHook(Hook&& hook) override;
  // Until all works have ended and the hook was called for each.
  void waitForPendingWorks() override;
  void enableCollectivesTiming() override { shared_->is_timed = true; }
  void setSequenceNumberForGroup() override {}
  uint64_t getSequenceNumberForGroup() override { return sequence_.load(); }
  c10d::ErrorType getError() override;
  void eagerConnectSingleDevice(at::Device device) override;
  bool is_connected() const noexcept { return shared_->transport.is_connected(); }
  // Of the numbers that this rank gives, as TORCH_NCCL_NAN_CHECK.
  void set_checks_for_nan(bool checks) noexcept { shared_->checks_for_nan = checks; }
  // Ends what is under way, here and on other ranks, and refuses everything from now on. Does not wait.
  void abort() override;
  // Waits for what is under way, as long as a collective may take, and refuses everything from now on.
  void shutdown() override;
  // Of the groups that this process has made, from 0 on.
  size_t number() const noexcept { return number_; }

 private:
  // Refuses what cannot be issued; the first collective under NCCL's name waits for the other ranks here.
  void check_issue(const std::vector<Step>& steps);
  void connect(int device);
  // In the call, which waits for the tensors: a NaN raises here and ends the group's work on all ranks.
  void refuse_nan(const std::vector<Step>& steps, c10::Stream current);
  void call_hook_after(const Ptr<OwnWork>& work);
  // Returns whether nothing is under way any more; else the time of a collective is over.
  bool wait_until_idle();
  Step step(Kind kind, const at::Tensor& described);
  WorkPtr issue(Step&& step, std::chrono::milliseconds timeout, Tensors results, bool blocks_host = false);
  // Submits them as one command; `title`: of the row in a profile.
  WorkPtr submit(std::vector<Step>&& steps, std::chrono::milliseconds timeout, Tensors results,
                 bool blocks_host, const std::string& title);
  // Whether the command can run in the call that issues it, so that no other thread has to take it over.
  bool can_run_now(Command& command, runtime::StreamRef where);
  // Several calls as one command, unless the program coalesces already.
  WorkPtr together(const std::function<void(size_t)>& each, size_t count);
  WorkPtr message(Kind kind, Tensors& tensors, int peer);
  // For tools that read what collectives a profile has.
  void record_parameters(const Step& step);
  // For the flight recorder; nothing where it keeps nothing.
  void record_flight(Command& command, const std::vector<Step>& steps, std::string_view line);
  // That a barrier is on, where the program does not say.
  int device_in_use();
  c10::Stream stream(c10::Device device, int peer);
  void set_reduction(Step& step, const c10d::ReduceOp& op);
  // Of the ranks of the default group: this group's, or those of a pair.
  Ranks global_ranks(int peer) const;
  int64_t price(const Step& step);
  // How long the command waits on its stream for other ranks that are simulated.
  int64_t wait_for_simulated(const std::vector<Step>& steps, c10::Stream own);

  const Ptr<c10d::Store> store_;
  const Ptr<GroupOptions> options_;
  const std::shared_ptr<Shared> shared_;
  std::atomic<uint64_t> sequence_{0}, message_sequence_{0};
  std::atomic<int64_t> num_splits_{0};
  std::atomic<bool> is_shut_down_{false};
  std::mutex submitting_;  // commands are in the order in which they have shown their first rounds
  const size_t number_ = num_made_.fetch_add(1);
  static inline std::atomic<size_t> num_made_{0};
  std::mutex mutex_;
  std::map<std::pair<int, int>, int64_t> streams_;  // by device and peer; −1: of collectives
  std::map<std::vector<int>, int> splits_;          // how often each list of ranks was split off
  std::map<int, int> layouts_;                      // by peer; −1: of the group
  std::shared_ptr<const Hook> hook_;
  std::optional<Ranks> simulated_;  // ranks of this group, once that has been asked
  std::shared_ptr<const RecordedGroup> recorded_;
  std::string group_key_;                       // the same on all ranks
  std::map<std::pair<int, int>, int64_t> met_;  // how often, by source and destination; −1: all
  bool is_coalescing_ = false;
  std::vector<Step> coalesced_;
  Tensors coalesced_results_;
};

// Aborts all that there are: the process ends, and must not wait for other ranks.
void abort_all() noexcept;

}  // namespace loom::distributed
