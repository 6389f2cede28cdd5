#include "torch/engine/alias.h"

#include <ATen/EmptyTensor.h>
#include <c10/core/StorageImpl.h>
#include <c10/util/SmallVector.h>

namespace loom::glue {

namespace {

using c10::DispatchKeySet;

// An alias has the metadata of its original, keys apart. Deriving gives access to TensorImpl's own copying.
class AliasImpl final : public c10::TensorImpl {
 public:
  AliasImpl(c10::Storage storage, DispatchKeySet keys, const c10::TensorImpl* original)
      : TensorImpl(std::move(storage), keys, original->dtype()) {
    take_metadata(original);
  }

  void take_metadata(const c10::TensorImpl* original) {
    const c10::Device device = device_opt_.value();
    copy_generic_tensor_metadata(original, this);
    device_opt_ = device;
    if (original->is_wrapped_number()) set_wrapped_number(true);
  }
};

AliasImpl* impl_of(const at::Tensor& alias) { return static_cast<AliasImpl*>(alias.unsafeGetTensorImpl()); }

c10::StorageImpl* storage_of(const at::Tensor& alias) {
  return alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Aliases that nobody holds any more, to be pointed at other memory.
class AliasPool {
 public:
  at::Tensor take(void* data, size_t bytes, const at::Tensor& original) {
    if (aliases_.empty()) return {};
    at::Tensor alias = std::move(aliases_.back());
    aliases_.pop_back();
    move_alias(alias, data, bytes);
    refresh_alias(alias, original);
    return alias;
  }

  void give_back(at::Tensor&& alias) {
    constexpr size_t kKept = 16;
    c10::TensorImpl* impl = alias.unsafeGetTensorImpl();
    if (aliases_.size() >= kKept || alias.use_count() != 1 || impl->unsafe_storage().use_count() != 1) return;
    if (impl->key_set() != fresh_keys() || impl->is_inference() || impl->is_wrapped_number()) return;
    aliases_.push_back(std::move(alias));
  }

 private:
  // The keys of a tensor of the engine without conjugate, negative or zero bits.
  static DispatchKeySet fresh_keys() {
    static const DispatchKeySet keys =
        at::detail::make_tensor<c10::TensorImpl>(alias_storage(nullptr, 0), engine_keys(),
                                                 caffe2::TypeMeta::Make<float>())
            .key_set();
    return keys;
  }

  c10::SmallVector<at::Tensor, 16> aliases_;
};

thread_local AliasPool pool;

}  // namespace

c10::DataPtr borrowed_memory(void* data) {
  return {data, nullptr, [](void*) {}, engine_device()};
}

c10::Storage alias_storage(void* data, size_t bytes) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(
      c10::StorageImpl::use_byte_size_t(), bytes, borrowed_memory(data), c10::GetAllocator(engine_type()),
      /*resizable=*/true));
}

at::Tensor alias_over(c10::Storage storage, const at::Tensor& original) {
  const c10::TensorImpl* impl = original.unsafeGetTensorImpl();
  return at::detail::make_tensor<AliasImpl>(std::move(storage), engine_keys() | (impl->key_set() & kMathBits),
                                            impl);
}

at::Tensor pooled_alias(void* data, size_t bytes, const at::Tensor& original) {
  at::Tensor alias;
  if ((original.key_set() & kMathBits).empty()) alias = pool.take(data, bytes, original);
  return alias.defined() ? alias : alias_over(alias_storage(data, bytes), original);
}

void give_back_alias(at::Tensor&& alias) { pool.give_back(std::move(alias)); }

void move_alias(const at::Tensor& alias, void* data, size_t bytes) {
  c10::StorageImpl* storage = storage_of(alias);
  storage->set_data_ptr_noswap(borrowed_memory(data));
  storage->set_nbytes(bytes);
}

void refresh_alias(const at::Tensor& alias, const at::Tensor& original) {
  impl_of(alias)->take_metadata(original.unsafeGetTensorImpl());
}

at::Tensor engine_tensor_at(void* data, size_t bytes, c10::ScalarType dtype, at::IntArrayRef sizes,
                            at::IntArrayRef strides, int64_t offset) {
  at::Tensor tensor = at::detail::make_tensor<c10::TensorImpl>(alias_storage(data, bytes), engine_keys(),
                                                               c10::scalarTypeToTypeMeta(dtype));
  tensor.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return tensor;
}

}  // namespace loom::glue
