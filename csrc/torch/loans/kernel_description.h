// What the tape reports of an op's kernel: made on the caller's stack, and only if a reader wants it.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <type_traits>
#include <vector>

#include "runtime/commands.h"

namespace loom::glue {

// A list of plain values with room for N of them in place. add() returns one to be filled, and nothing is
// copied or cleared.
template <typename T, size_t N>
class PlainList {
 public:
  PlainList() noexcept {}
  ~PlainList() {
    if (items_ != room()) [[unlikely]] {
      std::free(items_);
    }
  }
  PlainList(const PlainList&) = delete;
  PlainList& operator=(const PlainList&) = delete;

  T& add() {
    if (size_ == capacity_) [[unlikely]] {
      grow();
    }
    return *new (items_ + size_++) T;
  }
  T& operator[](size_t i) { return items_[i]; }
  const T& operator[](size_t i) const { return items_[i]; }
  size_t size() const noexcept { return size_; }
  operator std::span<const T>() const noexcept { return {items_, size_}; }

 private:
  static_assert(std::is_trivially_copyable_v<T> && std::is_trivially_destructible_v<T>);
  T* room() noexcept { return reinterpret_cast<T*>(room_); }
  [[gnu::noinline]] void grow() {
    auto* const larger = static_cast<T*>(std::malloc(2 * capacity_ * sizeof(T)));
    if (larger == nullptr) throw std::bad_alloc();
    std::memcpy(larger, items_, size_ * sizeof(T));
    if (items_ != room()) std::free(items_);
    items_ = larger;
    capacity_ *= 2;
  }

  T* items_ = room();
  size_t size_ = 0, capacity_ = N;
  alignas(T) unsigned char room_[N * sizeof(T)];
};

class KernelDescription {
 public:
  // Not "= default": then making one would fill the room for operands with zeros.
  KernelDescription() {}

  // A tensor of the device among the arguments, in their order; it lives until the end.
  void add_input(const c10::TensorImpl* tensor, bool is_written) {
    tensors_.add() = tensor;
    writes_ |= is_written;
    describe(tensor, is_written, inputs_.add());
  }
  // One of them has other memory than it had when it was added.
  void note_moved() { has_moved_ = true; }

  // An argument that is no tensor, as C++ has it. Tensors, devices and generators are passed over. Lists and
  // text live until the end.
  template <typename T>
  void add_attribute(const char* name, const T& value);
  // The same as the dispatcher has it; what it refers to need not live.
  void add_value(const char* name, const c10::IValue& value);

  // A result, as the program gets it; whatever is not a tensor of the device is passed over.
  void add_output(const at::Tensor& tensor);
  void add_output(const c10::IValue& value);
  template <typename... T>
  void add_output(const std::tuple<T...>& results) {
    std::apply([&](const auto&... one) { (add_output(one), ...); }, results);
  }
  void add_output(const std::vector<at::Tensor>& results) {
    for (const at::Tensor& result : results) add_output(result);
  }
  void add_output(int64_t) {}
  void add_output(const c10::SymInt&) {}
  // Of an op that returns nothing.
  void add_written_inputs();

  // Reports the kernel. An exception from a reader propagates.
  void begin(runtime::StreamRef stream, const char* name, const runtime::OpRecord* op);
  bool has_begun() const { return launch_.has_begun(); }
  void submit(const driver::Kernel& kernel) { launch_.submit(kernel, outputs_); }
  void run(const runtime::InPlace& place, const driver::Kernel& kernel) { launch_.run(place, kernel); }
  // After the last output.
  void end();

 private:
  static void describe(const c10::TensorImpl* tensor, bool is_written, runtime::Operand& operand) {
    const at::IntArrayRef sizes = tensor->sizes(), strides = tensor->strides();
    const at::ScalarType dtype = tensor->dtype().toScalarType();
    const c10::StorageImpl* const storage = tensor->unsafe_storage().unsafeGetStorageImpl();
    const auto* const first = storage == nullptr ? nullptr : static_cast<const char*>(storage->data());
    // Not the tensor's itemsize(), which asks a table of another library.
    operand.item_bytes = static_cast<int32_t>(c10::elementSize(dtype));
    operand.address =
        first == nullptr ? nullptr : first + tensor->storage_offset() * int64_t{operand.item_bytes};
    operand.sizes = sizes.data();
    operand.strides = strides.data();
    operand.num_dims = static_cast<int32_t>(sizes.size());
    operand.dtype = static_cast<int8_t>(dtype);
    operand.is_written = is_written;
  }
  void describe_inputs_again();
  runtime::Attribute& add(const char* name, runtime::Attribute::Kind kind, size_t count = 0);
  void add_integers(const char* name, runtime::Attribute::Kind kind, const int64_t* values, size_t count);
  void add_scalar(const char* name, const at::Scalar& value);
  void add_scalars(const char* name, at::ArrayRef<at::Scalar> values);
  template <typename T>
  T* make_room(size_t count) {
    static_assert(sizeof(T) <= sizeof(uint64_t));
    return reinterpret_cast<T*>(extras().owned.emplace_back(std::make_unique<uint64_t[]>(count)).get());
  }

  // What few ops need.
  struct Extras {
    std::vector<std::unique_ptr<uint64_t[]>> owned;
    c10::SmallVector<at::Tensor, 3> parts;  // of sparse results
  };
  Extras& extras() {
    if (extras_ == nullptr) extras_ = std::make_unique<Extras>();
    return *extras_;
  }

  runtime::Launch launch_;
  bool has_moved_ = false, writes_ = false;
  std::unique_ptr<Extras> extras_;
  PlainList<const c10::TensorImpl*, 8> tensors_;
  PlainList<runtime::Operand, 8> inputs_;  // of each tensor
  PlainList<runtime::Operand, 4> outputs_;
  PlainList<runtime::Attribute, 8> attributes_;
};

// The names of an op's arguments, in their order.
std::vector<const char*> argument_names(const char* op, const char* overload);

namespace detail {

template <typename T>
struct is_optional : std::false_type {};
template <typename T>
struct is_optional<std::optional<T>> : std::true_type {};
template <typename T>
struct is_bools : std::false_type {};
template <size_t N>
struct is_bools<std::array<bool, N>> : std::true_type {};

}  // namespace detail

template <typename T>
void KernelDescription::add_attribute(const char* name, const T& value) {
  using Kind = runtime::Attribute::Kind;
  if constexpr (detail::is_optional<T>::value) {
    if (value.has_value()) {
      add_attribute(name, *value);
    } else if constexpr (!std::is_same_v<T, std::optional<at::Tensor>> &&
                         !std::is_same_v<T, std::optional<c10::Device>> &&
                         !std::is_same_v<T, std::optional<at::Generator>>) {
      add(name, Kind::kNone);
    }
  } else if constexpr (std::is_same_v<T, bool>) {
    add(name, Kind::kBool).integer = value ? 1 : 0;
  } else if constexpr (std::is_integral_v<T> || std::is_enum_v<T>) {
    add(name, Kind::kInteger).integer = static_cast<int64_t>(value);
  } else if constexpr (std::is_floating_point_v<T>) {
    add(name, Kind::kReal).real = value;
  } else if constexpr (std::is_same_v<T, c10::SymInt>) {
    add(name, Kind::kInteger).integer = value.guard_int(__FILE__, __LINE__);
  } else if constexpr (std::is_same_v<T, at::Scalar>) {
    add_scalar(name, value);
  } else if constexpr (std::is_same_v<T, at::IntArrayRef>) {
    add_integers(name, Kind::kIntegers, value.data(), value.size());
  } else if constexpr (std::is_same_v<T, c10::SymIntArrayRef>) {
    // Numbers that are no symbols have the form of an int64_t.
    const at::IntArrayRef plain = C10_AS_INTARRAYREF_SLOW(value);
    add_integers(name, Kind::kIntegers, plain.data(), plain.size());
  } else if constexpr (std::is_same_v<T, at::OptionalIntArrayRef> ||
                       std::is_same_v<T, at::OptionalSymIntArrayRef>) {
    if (value.has_value()) {
      add_attribute(name, *value);
    } else {
      add(name, Kind::kNone);
    }
  } else if constexpr (std::is_same_v<T, at::ArrayRef<double>>) {
    add(name, Kind::kReals, value.size()).reals = value.data();
  } else if constexpr (std::is_same_v<T, at::ArrayRef<at::Scalar>>) {
    add_scalars(name, value);
  } else if constexpr (detail::is_bools<T>::value) {
    auto* numbers = make_room<int64_t>(value.size());
    std::copy(value.begin(), value.end(), numbers);
    add_integers(name, Kind::kBools, numbers, value.size());
  } else if constexpr (std::is_same_v<T, std::string_view> || std::is_same_v<T, c10::string_view>) {
    add(name, Kind::kText, value.size()).text = value.data();
  } else {
    static_assert(std::is_same_v<T, at::Tensor> || std::is_same_v<T, at::TensorList> ||
                      std::is_same_v<T, at::ITensorListRef> || std::is_same_v<T, at::Generator> ||
                      std::is_same_v<T, c10::Device> ||
                      std::is_same_v<T, c10::List<std::optional<at::Tensor>>>,
                  "an argument of this type cannot be told to the tape yet");
  }
}

}  // namespace loom::glue
