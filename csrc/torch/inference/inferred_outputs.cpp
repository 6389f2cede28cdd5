#include "torch/inference/inferred_outputs.h"

#include <algorithm>
#include <cstring>
#include <mutex>
#include <shared_mutex>
#include <sstream>
#include <string_view>
#include <unordered_map>

#include "runtime/worlds.h"
#include "torch/loans/layouts.h"
#include "torch/memory/allocator.h"

namespace loom::glue {

namespace {

struct KeyHash {
  size_t operator()(const CallKey& key) const noexcept { return key.first; }
};

struct InferredOutputsTable {
  std::shared_mutex mutex;
  std::unordered_map<CallKey, std::shared_ptr<const InferredOutputs>, KeyHash> entries;
};

// Leaked: threads may ask until the process ends.
InferredOutputsTable& table() {
  static auto* instance = new InferredOutputsTable;
  return *instance;
}

bool is_same_storage(const at::Tensor& left, const at::Tensor& right) {
  return left.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl() ==
         right.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

at::Tensor tensor_over(const c10::Storage& storage, const Layout& layout, c10::DispatchKeySet keys,
                       bool is_view) {
  if (layout.is_conj) keys = keys.add(c10::DispatchKey::Conjugate);
  if (layout.is_neg) keys = keys.add(c10::DispatchKey::Negative);
  const auto type = c10::scalarTypeToTypeMeta(layout.dtype);
  at::Tensor tensor = is_view ? at::detail::make_tensor<c10::TensorImpl>(c10::TensorImpl::VIEW,
                                                                         c10::Storage(storage), keys, type)
                              : at::detail::make_tensor<c10::TensorImpl>(c10::Storage(storage), keys, type);
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(layout.sizes, layout.strides, layout.offset);
  return tensor;
}

}  // namespace

Layout Layout::of(const at::Tensor& tensor) {
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const auto sizes = impl->sizes(), strides = impl->strides();
  Layout layout;
  layout.dtype = tensor.scalar_type();
  layout.sizes.assign(sizes.begin(), sizes.end());
  layout.strides.assign(strides.begin(), strides.end());
  layout.offset = impl->storage_offset();
  layout.is_conj = tensor.is_conj();
  layout.is_neg = tensor.is_neg();
  return layout;
}

bool Layout::fits(const at::Tensor& tensor) const {
  return tensor.scalar_type() == dtype && tensor.sizes() == at::IntArrayRef(sizes) &&
         tensor.is_conj() == is_conj && tensor.is_neg() == is_neg;
}

std::shared_ptr<const InferredOutputs> find_inferred(const CallKey& key) {
  std::shared_lock<std::shared_mutex> lock(table().mutex);
  const auto found = table().entries.find(key);
  return found == table().entries.end() ? nullptr : found->second;
}

void InferredOutputs::learn_allocations(Allocations seen) const {
  const Allocations* known = nullptr;
  auto* own = new Allocations(std::move(seen));
  if (!allocations_.compare_exchange_strong(known, own, std::memory_order_acq_rel)) delete own;
}

void learn_outputs(const CallKey& key, std::shared_ptr<const InferredOutputs> inferred) {
  constexpr size_t kKept = 65536;  // programs whose shapes never repeat must not grow it for ever
  std::unique_lock<std::shared_mutex> lock(table().mutex);
  if (table().entries.size() >= kKept) table().entries.clear();
  table().entries[key] = std::move(inferred);
}

namespace {

class Observer {
 public:
  Observer(const c10::SmallVector<Loan, 6>& loans, const OutputAllocations* allocations, ShownBy shown_by)
      : loans_(loans), allocations_(allocations), shown_by_(shown_by) {}

  std::shared_ptr<const InferredOutputs> observe(const torch::jit::Stack& stack, size_t num_returns) {
    for (size_t i = stack.size() - num_returns; i < stack.size(); ++i) add(stack[i]);
    for (size_t i = 0; i < loans_.size(); ++i) add_change(i);
    if (allocations_ != nullptr) show_allocations();
    return inferred_;
  }

 private:
  void show_allocations() {
    InferredOutputs::Allocations shown;
    for (const OutputAllocations::Allocation& allocation : allocations_->seen())
      shown.push_back({allocation.bytes, -1});
    for (size_t i = 0; i < memory_.size(); ++i) {
      const int place = memory_[i] == nullptr ? -1 : allocations_->index_of(memory_[i]->data());
      if (place >= 0) shown[static_cast<size_t>(place)].storage = static_cast<int>(i);
    }
    inferred_->learn_allocations(std::move(shown));
  }

  void add(const c10::IValue& result) {
    InferredOutputs::Return returned;
    if (result.isTensor()) {
      returned.outputs.push_back(output_of(result.toTensor()));
    } else if (result.isTensorList()) {
      returned.is_list = true;
      for (const c10::IValue& tensor : result.toListRef())
        returned.outputs.push_back(output_of(tensor.toTensor()));
    } else if (result.isNone()) {
      returned.outputs.push_back({});
      outputs_.push_back(nullptr);
    } else {
      inferred_->can_queue = false;  // a value of the host's
    }
    inferred_->returns.push_back(std::move(returned));
  }

  Output output_of(const at::Tensor& tensor) {
    const auto earlier = std::find(outputs_.begin(), outputs_.end(), tensor.unsafeGetTensorImpl());
    const auto place = static_cast<size_t>(earlier - outputs_.begin());
    outputs_.push_back(tensor.unsafeGetTensorImpl());
    if (!tensor.defined()) return {};
    if (!is_dense(tensor) || tensor._is_zerotensor()) {
      inferred_->can_queue = false;
      return {};
    }
    Output output{Output::Kind::kNew, 0, Layout::of(tensor)};
    for (size_t i = 0; i < loans_.size(); ++i) {
      if (!loans_[i].alias.is_same(tensor)) continue;
      output.kind = Output::Kind::kOperand;
      output.index = i;
      return output;
    }
    // One tensor and two that share memory differ: autograd keeps the latter as the gradients of two
    // parameters without a copy.
    if (place + 1 < outputs_.size()) {
      if (shown_by_ == ShownBy::kShapeFunction) {
        output.index = memory_.size();
        add_memory(nullptr, tensor.storage().nbytes());
      } else {
        output.kind = Output::Kind::kSame;
        output.index = place;
      }
      return output;
    }
    for (size_t i = 0; i < loans_.size(); ++i) {
      if (!is_dense(loans_[i].alias) || !is_same_storage(loans_[i].alias, tensor)) continue;
      output.kind = Output::Kind::kView;
      output.index = i;
      output.layout.offset -= loans_[i].alias.storage_offset();
      return output;
    }
    const c10::StorageImpl* storage = tensor.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
    const auto known = std::find(memory_.begin(), memory_.end(), storage);
    output.index = static_cast<size_t>(known - memory_.begin());
    if (known == memory_.end()) add_memory(storage, storage == nullptr ? 0 : storage->nbytes());
    return output;
  }

  void add_memory(const c10::StorageImpl* storage, size_t bytes) {
    memory_.push_back(storage);
    inferred_->storage_bytes.push_back(bytes);
  }

  void add_change(size_t index) {
    const Loan& loan = loans_[index];
    if (!loan.is_written || !is_dense(loan.alias)) return;
    const Layout before = Layout::of(loan.original()), after = Layout::of(loan.alias);
    if (before.is_conj != after.is_conj || before.is_neg != after.is_neg || before.offset != after.offset) {
      inferred_->can_queue = false;
    }
    if (before.sizes == after.sizes && before.strides == after.strides) return;
    inferred_->resized.push_back({index, after});
    // Given its new size before the kernel runs, it would be read at that size: x.addbmm_(…) of a smaller x.
    if (loan.original().numel() != 0) inferred_->can_queue = false;
  }

  const c10::SmallVector<Loan, 6>& loans_;
  const OutputAllocations* const allocations_;
  const ShownBy shown_by_;
  std::vector<const c10::StorageImpl*> memory_;
  std::vector<const c10::TensorImpl*> outputs_;
  const std::shared_ptr<InferredOutputs> inferred_ = std::make_shared<InferredOutputs>();
};

}  // namespace

std::shared_ptr<const InferredOutputs> observe(const torch::jit::Stack& stack, size_t num_returns,
                                               const c10::SmallVector<Loan, 6>& loans,
                                               const OutputAllocations* allocations, ShownBy shown_by) {
  return Observer(loans, allocations, shown_by).observe(stack, num_returns);
}

namespace {

// Strides of dimensions without a choice do not matter.
bool have_same_strides(const Layout& left, const Layout& right) {
  for (size_t i = 0; i < left.sizes.size(); ++i) {
    if (left.sizes[i] == 0) return true;
    if (left.sizes[i] > 1 && left.strides[i] != right.strides[i]) return false;
  }
  return true;
}

std::string text(const Layout& layout) {
  std::ostringstream out;
  out << layout.dtype << at::IntArrayRef(layout.sizes) << " strides " << at::IntArrayRef(layout.strides)
      << " offset " << layout.offset;
  return out.str();
}

const char* difference(const Output& said, const Output& shown) {
  if (said.kind != shown.kind || said.index != shown.index) return "aliasing";
  if (said.kind != Output::Kind::kNew && said.kind != Output::Kind::kView) return nullptr;
  const Layout &left = said.layout, &right = shown.layout;
  if (left.dtype != right.dtype) return "dtypes";
  if (left.sizes != right.sizes) return "sizes";
  if (!have_same_strides(left, right)) return "strides";
  if (left.offset != right.offset || left.is_conj != right.is_conj || left.is_neg != right.is_neg) {
    return "aliasing";
  }
  return nullptr;
}

}  // namespace

std::pair<std::string, std::string> compare(const InferredOutputs& said, const InferredOutputs& shown) {
  if (said.can_queue != shown.can_queue) return {"resizing", said.can_queue ? "shown" : "said"};
  if (!shown.can_queue) return {"agrees", ""};
  for (size_t i = 0; i < shown.returns.size(); ++i) {
    const auto &left = said.returns[i].outputs, &right = shown.returns[i].outputs;
    if (left.size() != right.size()) return {"sizes", "lists of different length"};
    for (size_t j = 0; j < left.size(); ++j) {
      if (const char* what = difference(left[j], right[j])) {
        return {what, "result " + std::to_string(i) + ": said " + text(left[j].layout) + ", shown " +
                          text(right[j].layout)};
      }
    }
  }
  if (said.resized.size() != shown.resized.size()) return {"resizing", "another number of operands"};
  for (size_t i = 0; i < shown.resized.size(); ++i) {
    const Layout &left = said.resized[i].layout, &right = shown.resized[i].layout;
    if (left.sizes != right.sizes || !have_same_strides(left, right)) {
      return {"resizing", "said " + text(left) + ", shown " + text(right)};
    }
  }
  for (size_t i = 0; i < shown.storage_bytes.size(); ++i) {
    if (said.storage_bytes[i] < shown.storage_bytes[i]) {
      return {"storage", std::to_string(said.storage_bytes[i]) + " bytes said, " +
                             std::to_string(shown.storage_bytes[i]) + " shown"};
    }
  }
  return {"agrees", ""};
}

PreparedOutputs::PreparedOutputs(const InferredOutputs& inferred, const c10::SmallVector<Loan, 6>& loans,
                                 int device) {
  const CurrentDevice current(device);
  for (const size_t bytes : inferred.storage_bytes) {
    storages_.emplace_back(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                                 device_allocator()->allocate(bytes),
                                                                 device_allocator(), /*resizable=*/true));
  }
  for (const InferredOutputs::Return& returned : inferred.returns) {
    if (returned.is_list) {
      c10::List<at::Tensor> list;
      for (const Output& output : returned.outputs) list.push_back(made_.emplace_back(make(output, loans)));
      results_.emplace_back(std::move(list));
    } else {
      results_.emplace_back(made_.emplace_back(make(returned.outputs.front(), loans)));
    }
  }
}

at::Tensor PreparedOutputs::make(const Output& output, const c10::SmallVector<Loan, 6>& loans) {
  switch (output.kind) {
    case Output::Kind::kUndefined:
      return {};
    case Output::Kind::kOperand:
      return loans[output.index].original();
    case Output::Kind::kSame:
      return made_[output.index];
    case Output::Kind::kView: {
      const at::Tensor& original = loans[output.index].original();
      Layout layout = output.layout;
      layout.offset += original.storage_offset();
      return tensor_over(original.storage(), layout, own_keys(), /*is_view=*/true);
    }
    case Output::Kind::kNew:
      return tensor_over(storages_[output.index], output.layout, own_keys(), /*is_view=*/false);
  }
  return {};
}

void PreparedOutputs::push(torch::jit::Stack& stack) const {
  for (const c10::IValue& result : results_) stack.push_back(result);
}

std::vector<void*> PreparedOutputs::addresses(const runtime::Device& target) const {
  std::vector<void*> addresses;
  for (const c10::Storage& storage : storages_) {
    const runtime::Runtime& seen = target.runtime();
    // Another thread may have had the program see other devices while they were made.
    if (runtime::has_other_worlds() && storage.data() != nullptr && seen.device_of(storage.data()) < 0) {
      TORCH_CHECK(false, "a dry run began or ended in another thread while an op was issued");
    }
    addresses.push_back(seen.engine_address(storage.data()));
  }
  return addresses;
}

}  // namespace loom::glue
