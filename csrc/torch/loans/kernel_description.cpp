#include "torch/loans/kernel_description.h"

#include <ATen/core/dispatch/Dispatcher.h>

#include <algorithm>
#include <cstring>

#include "torch/core/device.h"
#include "torch/loans/layouts.h"

namespace loom::glue {

using runtime::Attribute;

std::vector<const char*> argument_names(const char* op, const char* overload) {
  std::vector<const char*> names;
  const auto handle = c10::Dispatcher::singleton().findSchemaOrThrow(op, overload);
  for (const c10::Argument& argument : handle.schema().arguments()) names.push_back(argument.name().c_str());
  return names;
}

void KernelDescription::describe_inputs_again() {
  for (size_t i = 0; i < tensors_.size(); ++i) describe(tensors_[i], inputs_[i].is_written, inputs_[i]);
}

Attribute& KernelDescription::add(const char* name, Kind kind, size_t count) {
  Attribute& attribute = attributes_.add();
  attribute.name = name;
  attribute.kind = kind;
  attribute.count = static_cast<uint32_t>(count);
  attribute.integer = 0;
  attribute.imaginary = 0;
  return attribute;
}

void KernelDescription::add_attribute(const char* name, const at::Scalar& value) {
  if (value.isBoolean()) {
    add_attribute(name, value.toBool());
  } else if (value.isIntegral(/*includeBool=*/false) && value.type() != c10::ScalarType::UInt64) {
    add_attribute(name, value.toLong());
  } else if (value.isComplex()) {
    const auto complex = value.toComplexDouble();
    Attribute& attribute = add(name, Kind::kComplex);
    attribute.real = complex.real();
    attribute.imaginary = complex.imag();
  } else {
    add_attribute(name, value.toDouble());  // integers too that need an unsigned type
  }
}

void KernelDescription::add_attribute(const char* name, at::ArrayRef<at::Scalar> values) {
  auto* numbers = make_room<double>(values.size());
  std::transform(values.begin(), values.end(), numbers, [](const at::Scalar& value) {
    return value.isComplex() ? value.toComplexDouble().real() : value.toDouble();
  });
  add_attribute(name, at::ArrayRef<double>(numbers, values.size()));
}

void KernelDescription::add_value(const char* name, const c10::IValue& value) {
  if (value.isNone()) {
    add(name, Kind::kNone);
  } else if (value.isBool()) {
    add_attribute(name, value.toBool());
  } else if (value.isInt() || value.isSymInt()) {
    add_attribute(name, value.isInt() ? c10::SymInt(value.toInt()) : value.toSymInt());
  } else if (value.isDouble()) {
    add_attribute(name, value.toDouble());
  } else if (value.isComplexDouble()) {
    add_attribute(name, at::Scalar(value.toComplexDouble()));
  } else if (value.isString()) {
    const std::string_view text = value.toStringView();
    char* kept = reinterpret_cast<char*>(make_room<uint64_t>(text.size() / sizeof(uint64_t) + 1));
    std::memcpy(kept, text.data(), text.size());
    add_attribute(name, std::string_view(kept, text.size()));
  } else if (value.isIntList() || value.isSymIntList() || value.isBoolList()) {
    const auto elements = value.toListRef();
    auto* numbers = make_room<int64_t>(elements.size());
    std::transform(elements.begin(), elements.end(), numbers, [](const c10::IValue& element) -> int64_t {
      return element.isBool() ? element.toBool() : element.toSymInt().guard_int(__FILE__, __LINE__);
    });
    add(name, value.isBoolList() ? Kind::kBools : Kind::kIntegers, elements.size()).integers = numbers;
  } else if (value.isList() && !value.isTensorList() && !value.isOptionalTensorList()) {
    const auto elements = value.toListRef();
    c10::SmallVector<at::Scalar, 8> numbers;
    for (const c10::IValue& element : elements) {
      if (!element.isScalar()) return;
      numbers.push_back(element.toScalar());
    }
    add_attribute(name, at::ArrayRef<at::Scalar>(numbers));
  }
}

void KernelDescription::add_output(const at::Tensor& tensor) {
  if (!tensor.defined() || tensor.device().type() != device_type()) return;
  if (!is_dense(tensor)) {
    auto& parts = extras().parts;
    const size_t first = parts.size();
    for (const at::Tensor& part : parts_of(tensor)) parts.push_back(part);
    for (size_t i = first; i < parts.size(); ++i) {
      describe(parts[i].unsafeGetTensorImpl(), /*is_written=*/true, outputs_.add());
    }
    return;
  }
  const c10::TensorImpl* impl = tensor.unsafeGetTensorImpl();
  const c10::StorageImpl* storage = impl->unsafe_storage().unsafeGetStorageImpl();
  bool is_operand = false, is_written = false;
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (tensors_[i]->unsafe_storage().unsafeGetStorageImpl() != storage) continue;
    is_operand = true;
    is_written |= inputs_[i].is_written;
  }
  describe(impl, !is_operand || is_written, outputs_.add());
}

void KernelDescription::add_output(const c10::IValue& value) {
  if (value.isTensor()) {
    add_output(value.toTensor());
  } else if (value.isTensorList()) {
    for (const c10::IValue& element : value.toListRef()) add_output(element.toTensor());
  }
}

void KernelDescription::add_written_inputs() {
  for (size_t i = 0; i < tensors_.size(); ++i) {
    if (inputs_[i].is_written) describe(tensors_[i], true, outputs_.add());
  }
}

void KernelDescription::begin(runtime::StreamRef stream, const char* name, const runtime::OpRecord* op) {
  if (has_moved_) describe_inputs_again();
  launch_.begin(stream, name, {op, inputs_, attributes_});
}

void KernelDescription::end() {
  // The kernel may have given them other sizes.
  if (writes_) describe_inputs_again();
  launch_.end(inputs_, outputs_);
}

}  // namespace loom::glue
