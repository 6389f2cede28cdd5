// Lending: an op on loom tensors hands their memory to the engine's kernel, without a copy, and takes the
// result back. Only the files of this task (lend, adopt, output_allocations, inferred, queued_op, lazy), and
// those that call a kernel of the engine by name (rnn.cpp, attention.cpp), know that device memory becomes
// another device type's tensor.
#pragma once

#include <ATen/core/Tensor.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <c10/util/SmallVector.h>

#include "torch/core/engine.h"
#include "torch/memory/output_allocation.h"
#include "torch/ops/fallback.h"

namespace loom::glue {

// What an op may be given besides tensors of one loom device.
struct OperandPolicy {
  bool host_scalars = false;  // tensors of the CPU with no dimension (TensorIterator's rule)
  bool host_tensors = false;  // tensors of the CPU (lengths, steps)
  bool host_lists = false;    // lists of tensors of the CPU (index tensors)
};

// An operand and the engine's tensor over its memory.
struct Loan {
  at::Tensor original, alias;
  bool is_written;
};

// One op: its operands while they are lent. Not reentrant: nested ops open their own.
class Lending {
 public:
  Lending(const char* op_name, OperandPolicy policy);
  ~Lending();
  Lending(const Lending&) = delete;
  Lending& operator=(const Lending&) = delete;

  // The engine's tensor over the same memory, with the same sizes, strides, offset and conjugate and negative
  // bits. Throws when it is on another device than the operands before it, in CUDA's words.
  at::Tensor lend(const at::Tensor& tensor, bool is_written = false);
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
  // Submits a kernel that uses the operands and writes `outputs`.
  void submit(runtime::StreamRef stream, const driver::Kernel& kernel,
              const std::vector<c10::Storage>& outputs);

  // Runs `work`, which calls the engine's kernel, in this thread after what is pending on the current stream;
  // what earlier calls showed of its allocations is in `table`. A driver without arithmetic is told of a
  // kernel, and `work` infers the result's metadata on tensors without data.
  template <typename F>
  void run(OutputAllocationTable& table, F&& work);
  // As run(), seeing all of the kernel's allocations.
  template <typename F>
  void run_learning(OutputAllocationTable& table, F&& work) {
    run_kernel(&call<std::remove_reference_t<F>>, const_cast<void*>(static_cast<const void*>(&work)));
    table_ = &table;
  }

  // The device the op runs on: that of the operands, or one named by an argument, or the current one.
  void set_device(int device);
  int device();
  // Lists of operands are written to, not only read.
  void set_writes_lists() { writes_lists_ = true; }
  bool writes_lists() const { return writes_lists_; }
  // An operand was sparse: the engine's kernel must be found by its tensors' keys.
  bool has_sparse() const { return has_sparse_; }
  // The dtypes of the operands on the device.
  fallback::DtypeSet dtypes() const { return dtypes_; }
  // An operand is the host's.
  bool has_host_operands() const { return has_host_operands_; }
  bool is_alias(const at::Tensor& tensor) const;
  const char* op_name() const { return op_name_; }
  const c10::SmallVector<Loan, 6>& loans() const { return loans_; }
  const OutputAllocations& output_allocations() const { return allocations_; }
  // Part of the key into a OutputAllocationTable: an argument that is not a tensor. The operands count by
  // themselves.
  void mix(uint64_t value) { key_ = (key_ ^ value) * 0x9E3779B97F4A7C15ull; }

 private:
  using Body = void (*)(void*);
  template <typename F>
  static void call(void* work) {
    (*static_cast<F*>(work))();
  }
  void run_kernel(Body body, void* context);
  c10::SmallVector<runtime::Operand, 6> describe_operands() const;
  bool has_moved(const Loan& loan) const;
  bool make_own(c10::DataPtr& memory, size_t bytes);
  void copy_from_host(void* destination, const void* source, size_t bytes);
  void mix_metadata(const c10::TensorImpl* impl);

  at::Tensor lend_checked(const at::Tensor& tensor, bool is_written, bool takes_host, size_t search_limit);
  at::Tensor lend_sparse(const at::Tensor& tensor);
  at::Tensor adopt_sparse(const at::Tensor& result);
  at::Tensor adopt_unowned(const at::Tensor& result);
  void check_device(const at::Tensor& tensor);
  [[noreturn]] void throw_device_mismatch(const at::Tensor& tensor) const;

  const char* const op_name_;
  const OperandPolicy policy_;
  int device_ = -1;
  bool has_sparse_ = false;
  bool has_host_operands_ = false;
  bool writes_lists_ = false;
  driver::Stream in_place_stream_ = nullptr;  // set when it runs kernels in this thread
  uint64_t key_ = 0;
  fallback::DtypeSet dtypes_ = fallback::kAnyOp;
  OutputAllocations allocations_ = OutputAllocations::learning();
  OutputMask learned_ = 0;
  OutputAllocationTable* table_ = nullptr;
  c10::SmallVector<Loan, 6> loans_;
  c10::impl::ExcludeDispatchKeyGuard no_autograd_;
};

template <typename F>
void Lending::run(OutputAllocationTable& table, F&& work) {
  const OutputMask* mask = table.find(key_);
  if (mask == nullptr) return run_learning(table, std::forward<F>(work));
  allocations_ = OutputAllocations(device(), *mask);
  run_kernel(&call<std::remove_reference_t<F>>, const_cast<void*>(static_cast<const void*>(&work)));
}

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

// Keys that find PyTorch's own composite kernel of a list op, which calls the op of each tensor in turn:
// those of a backend that has no kernels here. For lists on several devices.
inline c10::DispatchKeySet one_by_one_keys() { return c10::DispatchKeySet(c10::DispatchKey::HPU); }

}  // namespace loom::glue
