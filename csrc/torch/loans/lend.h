// Lending: an op on loom tensors hands their memory to the engine's kernel, without a copy, and takes the
// result back. How an alias is made, and what else depends on which engine it is, stands in
// csrc/torch/engine.
#pragma once

#include <ATen/core/Tensor.h>
#include <ATen/core/stack.h>
#include <c10/util/MaybeOwned.h>
#include <c10/util/SmallVector.h>

#include <atomic>
#include <optional>
#include <utility>
#include <vector>

#include "runtime/capture.h"
#include "runtime/simulated_clock.h"
#include "runtime/worlds.h"
#include "torch/engine/engine.h"
#include "torch/engine/output_allocation.h"
#include "torch/loans/kernel_description.h"
#include "torch/ops/fallback.h"
#include "torch/ops/op.h"
#include "util/call_key.h"

namespace loom::glue {

// A device has asserted (dispatch/device_assert.h): no kernel runs any more.
inline std::atomic<bool> has_asserted{false};

// An operand and the engine's tensor over its memory.
struct Loan {
  Loan(c10::MaybeOwned<at::Tensor> tensor, at::Tensor own_alias, bool writes)
      : held(std::move(tensor)),
        alias(std::move(own_alias)),
        is_written(writes),
        is_written_first(writes),
        may_have_changed(writes) {}

  c10::MaybeOwned<at::Tensor> held;
  at::Tensor alias;
  bool is_written;
  bool is_written_first;  // by the argument that it was lent for; others may follow
  bool may_have_changed;  // the alias: a kernel that writes may resize
  const at::Tensor& original() const { return *held; }
};

// One op: its operands while they are lent. Not reentrant: nested ops open their own.
class Lending {
 public:
  Lending(Op& op, OperandPolicy policy);
  explicit Lending(Op& op) : Lending(op, op.policy) {}
  ~Lending();
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

  // The engine's tensor over the same memory, with the same sizes, strides, offset and conjugate and negative
  // bits. Throws when it is on another device than the operands before it, in CUDA's words.
  at::Tensor lend(const at::Tensor& tensor, bool is_written = false) {
    return alias_of(tensor, is_written, Hold::kOwned);
  }
  // The same for a tensor that outlives the loans, as an argument of a call does: they count no reference to
  // it. Nor does the result count a reference to the alias, which lives as long as the loans.
  c10::MaybeOwned<at::Tensor> lend_borrowed(const at::Tensor& tensor, bool is_written = false) {
    return c10::MaybeOwned<at::Tensor>::borrowed(alias_of(tensor, is_written, Hold::kBorrowed));
  }
  // As lend(), for an operand of a list: no search for the same tensor among many.
  at::Tensor lend_element(const at::Tensor& tensor, bool is_written);

  // A result of the engine as a tensor of this device: the operand itself, a view of one, or new.
  at::Tensor adopt(at::Tensor result);
  // After the kernel: what it changed of an operand's sizes or memory is carried over. Only for written
  // operands.
  void write_back();

  // Gives a lent operand another size, and memory for it.
  void resize_loan(size_t index, at::IntArrayRef sizes, at::IntArrayRef strides);

  // Whether the current stream of the device runs a kernel in this thread, now.
  bool runs_in_place();

  // Once all arguments are lent or mixed in: whether the plan of such calls is known. Otherwise the caller
  // works it out (dispatch/plan.h), and sets it. With what this call shows besides it is kept at the end.
  bool find_plan() {
    const auto place = static_cast<uint64_t>(device());
    plan_key_ = key_.key(place, static_cast<uint64_t>(target_->runtime().world()));
    if (const std::optional<CallPlan> known = op_.plans.find(plan_key_)) [[likely]] {
      plan_ = *known;
      return true;
    }
    return false;
  }
  void set_plan(const CallPlan& plan) {
    plan_ = plan;
    has_news_ = true;
  }
  const CallPlan& plan() const { return plan_; }

  // After find_plan(): whether the kernel is reported. Its arguments that are no tensors are then added to
  // the description before it runs, and its results before finish(). Where only the clock wants it, a kernel
  // of known cost is not: finish() adds that to the time line. `costs_anew`: what it costs depends on values,
  // so that none is known.
  bool must_describe(bool costs_anew = false) {
    if (!runtime::tape::is_demanded(runtime::CommandKind::kKernel) && !runtime::capture::is_underway())
        [[likely]] {
      if (!runtime::simulated::is_on()) return false;
      if (in_place_ && !costs_anew) {
        cost_ = plan_.cost;
        if (cost_ != runtime::simulated::kNoCost) [[likely]]
          return false;
        learn_cost();
      }
    }
    begin_description();
    return true;
  }
  bool is_described() const { return description_.has_value(); }
  KernelDescription& description() { return *description_; }

  // What run() does, step by step, for a kernel that is queued: begin() reports its begin; submit() submits
  // it and reports its end. `outputs` are what it returns.
  void begin(runtime::StreamRef stream);
  void submit(runtime::StreamRef stream, const driver::Kernel& kernel, const torch::jit::Stack& outputs,
              size_t num_outputs);
  // After run() and write_back(): reports the kernel's end and results. An exception from a reader
  // propagates. Takes a tensor, a tuple, a vector.
  template <typename T>
  void finish(const T& result) {
    if (!description_.has_value()) [[likely]] {
      return finish_timed();
    }
    description_->add_output(result);
    finish_described();
  }
  // Of an op that returns nothing.
  void finish() {
    if (!description_.has_value()) [[likely]] {
      return finish_timed();
    }
    description_->add_written_inputs();
    finish_described();
  }

  // After find_plan(), before run(): says where the kernel's allocations go. Where the plan does not know it,
  // the run records all of them; a kernel that writes to no operand is then refused memory that the device
  // does not have, before it takes it from the host.
  void expect_outputs() {
    if (plan_.knows_outputs) [[likely]] {
      allocations_.know(*target_, plan_.outputs);
    } else {
      learn_outputs();
    }
  }
  // The next run records them again.
  void forget_outputs() { plan_.knows_outputs = false; }
  // Runs `work`, which calls the engine's kernel, in this thread after what is pending on the current stream.
  // A driver without arithmetic executes no kernel: `work` then infers the result's metadata on tensors
  // without data.
  template <typename F>
  void run(F&& work) {
    run_kernel(&call<std::remove_reference_t<F>>, const_cast<void*>(static_cast<const void*>(&work)));
    if (learns_) [[unlikely]]
      has_learned_ = has_news_ = true;
  }

  // The device the op runs on: that of the operands, or the device that an argument names, or the current
  // device.
  void set_device(int device);
  int device() {
    if (device_ < 0) choose_current();
    return device_;
  }
  // Whether that device has arithmetic; known once an operand was lent or target() asked.
  bool runs_kernels() const { return target_ != nullptr && target_->runs_kernels(); }
  const runtime::Device& target() {
    device();
    return *target_;
  }
  // The same, and the keys of its engine, once an operand was lent or the device was asked for.
  const runtime::Device& chosen() const { return *target_; }
  c10::DispatchKeySet engine_keys() const { return glue::engine_keys(*target_); }
  // The first list of operands is written to, not only read.
  void set_writes_list() { writes_list_ = true; }
  // Of the list that is lent next.
  bool take_writes_list() { return std::exchange(writes_list_, false); }
  // The engine's kernel must be found by its tensors' keys: an operand is sparse, nested or quantized.
  bool is_by_keys() const { return by_keys_; }
  // The same for an op without operands.
  void find_by_keys() { by_keys_ = true; }
  // The dtypes of the operands on the device.
  DtypeSet dtypes() const { return dtypes_; }
  // An operand is the host's.
  bool has_host_operands() const { return has_host_operands_; }
  bool is_alias(const at::Tensor& tensor) const;
  const runtime::OpRecord& op() const { return op_.record; }
  const char* op_name() const { return op_.record.full_name; }
  const c10::SmallVector<Loan, 6>& loans() const { return loans_; }
  const OutputAllocations& output_allocations() const { return allocations_; }
  // Part of the call's key: an argument that is not a tensor. The operands count by themselves.
  void mix(uint64_t value, uint64_t other = 0) { key_.add(value, other); }
  // An argument of a kind that has no place in it.
  void mix_unknown() { has_unknown_ = true; }
  // The key of what the call returns, if its arguments decide that: on any device, and a view of an operand
  // depends on where the operands lie that share a storage.
  std::optional<CallKey> key_of_outputs(bool has_gradients) const {
    if (has_unknown_) return std::nullopt;
    return key_.key(offsets_, has_gradients);
  }

 private:
  using Body = void (*)(void*);
  template <typename F>
  static void call(void* work) {
    (*static_cast<F*>(work))();
  }
  void run_kernel(Body body, void* context);
  void finish_described();
  void finish_timed() {
    if (cost_ != runtime::simulated::kNoCost) [[unlikely]] {
      translated([&] { runtime::simulated::run_kernel(device_, stream_.id, cost_); });
    }
  }
  void begin_description();
  void learn_cost();
  void learn_outputs();
  void keep_news();
  void take_workspace();
  bool takes_contiguous() const;
  bool has_moved(const Loan& loan) const;
  bool make_own(c10::DataPtr& memory, size_t bytes);
  void copy_from_host(void* destination, const void* source, size_t bytes);
  void mix_sizes(const c10::TensorImpl* impl);

  // What they return stays where it is until the next operand is lent.
  enum class Hold : uint8_t { kOwned, kBorrowed };
  const at::Tensor& alias_of(const at::Tensor& tensor, bool is_written, Hold hold) {
    return lend_checked(tensor, is_written, policy_.host_tensors, loans_.size(), hold);
  }
  const at::Tensor& lend_checked(const at::Tensor& tensor, bool is_written, bool takes_host,
                                 size_t search_limit, Hold hold);
  const at::Tensor& lend_special(const at::Tensor& tensor, bool is_written);
  at::Tensor make_special_alias(const at::Tensor& tensor, bool is_written);
  void write_back_special(const Loan& loan);
  at::Tensor adopt_special(const at::Tensor& result);
  at::Tensor adopt_unowned(const at::Tensor& result);
  void check_device(const at::Tensor& tensor) {
    if (device_ != tensor.device().index() || runtime::has_other_worlds()) choose_or_check(tensor);
  }
  void choose_or_check(const at::Tensor& tensor);
  void choose(const runtime::Runtime& seen, int device);
  void choose_current();
  [[noreturn]] void throw_device_mismatch(const at::Tensor& tensor) const;

  Op& op_;
  const OperandPolicy policy_;
  int device_ = -1;
  const runtime::Device* target_ = nullptr;  // that of device_
  bool by_keys_ = false;
  bool has_host_operands_ = false;
  bool writes_list_ = false;
  bool allows_tf32_ = false;
  runtime::InPlace in_place_;  // set when the stream runs kernels in this thread
  runtime::StreamRef stream_;  // that stream, once it was asked for
  KeyMixer key_;               // of all that decides what the kernel allocates and costs
  uint64_t offsets_ = 0;       // of operands, from those that they share storages with
  bool has_unknown_ = false;
  CallKey plan_key_;
  CallPlan plan_;
  int64_t cost_ = runtime::simulated::kNoCost;  // where the clock needs nothing else
  bool teaches_cost_ = false;                   // the cost of this described call becomes the plan's
  bool learns_ = false, has_learned_ = false;   // which of its allocations become outputs
  bool has_news_ = false;                       // the plan is new, or more is known of it
  DtypeSet dtypes_ = kAnyOp;
  OutputAllocations allocations_ = OutputAllocations::learning();
  OutputMask learned_ = 0;
  c10::SmallVector<Loan, 6> loans_;
  // Arguments that are operands lent before, after so many loans.
  struct Repeat {
    size_t num_loans, loan;
    bool is_written;
  };
  c10::SmallVector<Repeat, 2> repeats_;
  // Results that were copied: the engine's tensor, and the device's that stands for it.
  std::vector<std::pair<at::Tensor, at::Tensor>> copied_;
  std::vector<Loan> special_loans_;               // their parts are loans of their own
  std::optional<KernelDescription> description_;  // destroyed before the loans that it refers to
  const EngineScope scope_;
};

// Has autograd run backward passes in the thread that asks for them, or in its own in CUDA's name, the first
// time that a thread calls this.
void choose_backward_thread();

// Throws when a tensor with elements has no memory behind it: its storage was made smaller.
void check_has_memory(const at::Tensor& tensor, const char* op_name);

// Whether the tensors of some lists are on more than one device (CPU tensors without dimensions apart).
class DeviceSpan {
 public:
  void add(const at::Tensor& tensor) {
    if (tensor.dim() == 0 && tensor.device().is_cpu()) return;
    if (!first_.has_value()) first_ = tensor.device();
    mixed_ |= tensor.device() != *first_;
  }
  bool is_mixed() const { return mixed_; }

 private:
  std::optional<c10::Device> first_;
  bool mixed_ = false;
};

// Whether an op on a list of tensors is one command.
inline bool has_foreach() { return chip_has(runtime::FusedKernel::kForeach, runtime::current_device()); }

// Keys that find PyTorch's own composite kernel of a list op, which calls the op of each tensor in turn:
// those of a backend that has no kernels here. For lists on several devices, and for chips without such ops.
inline c10::DispatchKeySet one_by_one_keys() { return c10::DispatchKeySet(c10::DispatchKey::HPU); }

}  // namespace loom::glue
