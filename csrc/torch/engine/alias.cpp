#include "torch/engine/alias.h"

#include <c10/core/StorageImpl.h>
#include <c10/core/TensorOptions.h>

#include <array>
#include <utility>

#include "util/thread_local.h"

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
    mix_metadata();
  }

  // Whether take_metadata() would change nothing. What is kept for reuse is no number of Python's.
  bool has_metadata_of(const c10::TensorImpl* original) const {
    return data_type_ == original->dtype() && storage_offset_ == original->storage_offset() &&
           is_same(sizes_and_strides_.sizes_arrayref(), original->sizes()) &&
           is_same(sizes_and_strides_.strides_arrayref(), original->strides()) &&
           !original->is_wrapped_number();
  }

  const CallKey& key() const { return key_; }

 private:
  static bool is_same(at::IntArrayRef own, at::IntArrayRef other) {
    if (own.size() != other.size()) return false;
    for (size_t i = 0; i < own.size(); ++i) {
      if (own[i] != other[i]) return false;
    }
    return true;
  }

  void mix_metadata() {
    KeyMixer mixer;
    mixer.add(static_cast<uint64_t>(dtype().toScalarType()) |
                  static_cast<uint64_t>(is_wrapped_number()) << 8 | static_cast<uint64_t>(dim()) << 16,
              (key_set_ & kMathBits).raw_repr());
    const at::IntArrayRef own_sizes = sizes(), own_strides = strides();
    for (size_t i = 0; i < own_sizes.size(); ++i) {
      mixer.add(static_cast<uint64_t>(own_sizes[i]), static_cast<uint64_t>(own_strides[i]));
    }
    key_ = mixer.key();
  }

  CallKey key_;
};

AliasImpl* impl_of(const at::Tensor& alias) { return static_cast<AliasImpl*>(alias.unsafeGetTensorImpl()); }

c10::StorageImpl* storage_of(const at::Tensor& alias) {
  return alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// Of one thread and one engine at a time.
class AliasPool {
 public:
  at::Tensor take(c10::DeviceType engine) {
    if (count_ == 0 || engine != engine_) return {};
    return std::move(aliases_[--count_]);
  }

  void give_back(at::Tensor&& alias) {
    AliasImpl* const impl = impl_of(alias);
    if (impl->key_set() != keys_ && !choose(impl)) return;
    if (count_ == aliases_.size() || alias.use_count() != 1 || impl->unsafe_storage().use_count() != 1 ||
        impl->is_wrapped_number()) {
      return;
    }
    aliases_[count_++] = std::move(alias);
  }

 private:
  // Whether aliases with the keys of this one are kept from now on: not those of inference mode, nor with
  // conjugate or negative bits.
  bool choose(AliasImpl* alias) {
    if (count_ != 0 || alias->is_inference() || !(alias->key_set() & kMathBits).empty()) return false;
    engine_ = alias->device_type();
    keys_ = alias->key_set();
    return true;
  }

  c10::DeviceType engine_ = c10::DeviceType::COMPILE_TIME_MAX_DEVICE_TYPES;  // none yet
  DispatchKeySet keys_;
  std::array<at::Tensor, 16> aliases_;
  size_t count_ = 0;
};

// Null until the thread gives one back, and when it ends.
LOOM_FAST_ACCESS constinit thread_local AliasPool* pool = nullptr;

[[gnu::noinline]] AliasPool& make_pool() {
  struct Owner {
    ~Owner() { delete std::exchange(pool, nullptr); }
  };
  static thread_local const Owner owner;
  (void)&owner;
  // A thread that runs ops while its own objects are destroyed leaks its pool.
  pool = new AliasPool;
  return *pool;
}

}  // namespace

c10::DataPtr alias_memory(void* data, c10::DeviceType engine) {
  return {data, data, &c10::detail::deleteNothing, c10::Device(engine)};
}

c10::Storage alias_storage(void* data, size_t bytes, c10::DeviceType engine) {
  return c10::Storage(c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), bytes,
                                                            alias_memory(data, engine),
                                                            c10::GetAllocator(engine), /*resizable=*/true));
}

at::Tensor make_alias(c10::Storage storage, DispatchKeySet keys, const c10::TensorImpl* original) {
  return at::detail::make_tensor<AliasImpl>(std::move(storage), keys | (original->key_set() & kMathBits),
                                            original);
}

at::Tensor reuse_alias(void* data, size_t bytes, c10::DeviceType engine, const c10::TensorImpl* original) {
  if (!(original->key_set() & kMathBits).empty()) return {};
  if (pool == nullptr) return {};
  at::Tensor alias = pool->take(engine);
  if (!alias.defined()) return alias;
  point_alias(alias, data, bytes);
  if (!impl_of(alias)->has_metadata_of(original)) refresh_alias(alias, original);
  return alias;
}

void give_back_alias(at::Tensor&& alias) {
  (pool != nullptr ? *pool : make_pool()).give_back(std::move(alias));
}

void point_alias(const at::Tensor& alias, void* data) {
  c10::StorageImpl* storage = storage_of(alias);
  if (storage->_mutable_data_ptr_no_checks().unsafe_reset_data_and_ctx(data)) [[likely]] {
    return;
  }
  // A kernel has given it memory of its own.
  storage->set_data_ptr_noswap(alias_memory(data, storage->device_type()));
}

void point_alias(const at::Tensor& alias, void* data, size_t bytes) {
  point_alias(alias, data);
  storage_of(alias)->set_nbytes(bytes);
}

void refresh_alias(const at::Tensor& alias, const c10::TensorImpl* original) {
  impl_of(alias)->take_metadata(original);
}

const CallKey& metadata_key(const at::Tensor& alias) { return impl_of(alias)->key(); }

}  // namespace loom::glue
