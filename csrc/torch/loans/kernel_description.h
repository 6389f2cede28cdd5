// What the tape reports of an op's kernel: made on the caller's stack, and only if a reader wants it.
#pragma once

#include <ATen/core/List.h>
#include <ATen/core/Tensor.h>
#include <ATen/core/ivalue.h>
#include <c10/util/SmallVector.h>

#include <algorithm>
#include <array>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <new>
#include <optional>
#include <span>
#include <string_view>
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

// Arguments that are no attributes.
template <typename T>
inline constexpr bool kIsPassedOver =
    std::is_same_v<T, at::Tensor> || std::is_same_v<T, at::TensorList> ||
    std::is_same_v<T, at::ITensorListRef> || std::is_same_v<T, c10::List<std::optional<at::Tensor>>> ||
    std::is_same_v<T, at::Generator> || std::is_same_v<T, c10::Device>;

class KernelDescription {
  using Kind = runtime::Attribute::Kind;

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

  // An argument that is no tensor, as C++ has it. Lists and text live until the end.
  void add_attribute(const char* name, bool value) { add(name, Kind::kBool).integer = value ? 1 : 0; }
  void add_attribute(const char* name, double value) { add(name, Kind::kReal).real = value; }
  template <typename T>
    requires std::is_integral_v<T> || std::is_enum_v<T>
  void add_attribute(const char* name, T value) {
    add(name, Kind::kInteger).integer = static_cast<int64_t>(value);
  }
  void add_attribute(const char* name, const c10::SymInt& value) {
    add_attribute(name, value.guard_int(__FILE__, __LINE__));
  }
  void add_attribute(const char* name, const at::Scalar& value);
  void add_attribute(const char* name, std::string_view value) {
    add(name, Kind::kText, value.size()).text = value.data();
  }
  void add_attribute(const char* name, at::IntArrayRef values) {
    add(name, Kind::kIntegers, values.size()).integers = values.data();
  }
  // Numbers that are no symbols have the form of an int64_t.
  void add_attribute(const char* name, c10::SymIntArrayRef values) {
    add_attribute(name, C10_AS_INTARRAYREF_SLOW(values));
  }
  void add_attribute(const char* name, at::ArrayRef<double> values) {
    add(name, Kind::kReals, values.size()).reals = values.data();
  }
  void add_attribute(const char* name, at::ArrayRef<at::Scalar> values);
  template <size_t N>
  void add_attribute(const char* name, const std::array<bool, N>& values) {
    auto* numbers = make_room<int64_t>(N);
    std::copy(values.begin(), values.end(), numbers);
    add(name, Kind::kBools, N).integers = numbers;
  }
  template <typename T>
  void add_attribute(const char* name, const std::optional<T>& value) {
    if (value.has_value()) {
      add_attribute(name, *value);
    } else if constexpr (!kIsPassedOver<T>) {
      add(name, Kind::kNone);
    }
  }
  template <typename T>
  void add_attribute(const char* name, const c10::OptionalArrayRef<T>& values) {
    if (values.has_value()) {
      add_attribute(name, *values);
    } else {
      add(name, Kind::kNone);
    }
  }
  // Tensors are described as operands; where they live and which generator draws costs nothing.
  template <typename T>
    requires kIsPassedOver<T>
  void add_attribute(const char*, const T&) {}

  // The same as the dispatcher has it; what it refers to need not live.
  void add_value(const char* name, const c10::IValue& value);

  // A result, as the program gets it; whatever is not a tensor of the device is passed over.
  void add_output(const at::Tensor& tensor);
  void add_output(const c10::IValue& value);
  template <typename... T>
  void add_output(const std::tuple<T...>& results) {
    std::apply([&](const auto&... each) { (add_output(each), ...); }, results);
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
  runtime::Attribute& add(const char* name, Kind kind, size_t count = 0);
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

}  // namespace loom::glue
