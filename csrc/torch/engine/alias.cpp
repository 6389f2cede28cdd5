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
  }
};

c10::StorageImpl* storage_of(const at::Tensor& alias) {
  return alias.unsafeGetTensorImpl()->unsafe_storage().unsafeGetStorageImpl();
}

// The keys of a new tensor of an engine, without conjugate, negative or zero bits.
DispatchKeySet fresh_keys(c10::DeviceType engine) {
  const c10::DispatchKey key = c10::computeDispatchKey(std::nullopt, std::nullopt, c10::Device(engine));
  const at::Tensor fresh = at::detail::make_tensor<c10::TensorImpl>(
      alias_storage(nullptr, 0, engine), DispatchKeySet(key), caffe2::TypeMeta::Make<float>());
  return fresh.key_set();
}

// Of one thread and one engine at a time.
class AliasPool {
 public:
  at::Tensor take(c10::DeviceType engine) {
    if (count_ == 0 || engine != engine_) return {};
    return std::move(aliases_[--count_]);
  }

  void give_back(at::Tensor&& alias) {
    c10::TensorImpl* impl = alias.unsafeGetTensorImpl();
    if (count_ == aliases_.size() || alias.use_count() != 1 || impl->unsafe_storage().use_count() != 1)
      return;
    if (impl->device_type() != engine_ && !choose(impl->device_type())) return;
    if (impl->key_set() != keys_ || impl->is_inference() || impl->is_wrapped_number()) return;
    aliases_[count_++] = std::move(alias);
  }

 private:
  bool choose(c10::DeviceType engine) {
    if (count_ != 0) return false;
    engine_ = engine;
    keys_ = fresh_keys(engine);
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
  refresh_alias(alias, original);
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
  static_cast<AliasImpl*>(alias.unsafeGetTensorImpl())->take_metadata(original);
}

}  // namespace loom::glue
