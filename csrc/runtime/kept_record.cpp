#include "runtime/kept_record.h"

#include <cstring>

namespace loom::runtime {

namespace {

template <typename T>
const T* append(std::vector<T>& all, const T* values, size_t count) {
  const size_t first = all.size();
  all.insert(all.end(), values, values + count);
  return all.data() + first;
}

}  // namespace

KeptRecord::KeptRecord(const KernelRecord& record, std::span<const Operand> outputs) : op_(record.op) {
  size_t num_integers = 0, num_reals = 0, num_characters = 0;
  for (const auto& operands : {record.inputs, outputs}) {
    for (const Operand& operand : operands) num_integers += 2 * static_cast<size_t>(operand.num_dims);
  }
  for (const Attribute& attribute : record.attributes) {
    num_characters += std::strlen(attribute.name) + 1;
    if (attribute.kind == Attribute::Kind::kReals) num_reals += attribute.count;
    if (attribute.kind == Attribute::Kind::kText) num_characters += attribute.count;
    if (attribute.kind == Attribute::Kind::kBools || attribute.kind == Attribute::Kind::kIntegers) {
      num_integers += attribute.count;
    }
  }
  integers_.reserve(num_integers);
  reals_.reserve(num_reals);
  text_.reserve(num_characters);
  for (const Operand& operand : record.inputs) inputs_.push_back(keep(operand));
  for (const Operand& operand : outputs) outputs_.push_back(keep(operand));
  for (const Attribute& attribute : record.attributes) attributes_.push_back(keep(attribute));
}

Operand KeptRecord::keep(Operand operand) {
  const auto num_dims = static_cast<size_t>(operand.num_dims);
  operand.sizes = append(integers_, operand.sizes, num_dims);
  operand.strides = append(integers_, operand.strides, num_dims);
  return operand;
}

Attribute KeptRecord::keep(Attribute attribute) {
  attribute.name = append(text_, attribute.name, std::strlen(attribute.name) + 1);
  switch (attribute.kind) {
    case Attribute::Kind::kBools:
    case Attribute::Kind::kIntegers:
      attribute.integers = append(integers_, attribute.integers, attribute.count);
      break;
    case Attribute::Kind::kReals:
      attribute.reals = append(reals_, attribute.reals, attribute.count);
      break;
    case Attribute::Kind::kText:
      attribute.text = append(text_, attribute.text, attribute.count);
      break;
    default:
      break;
  }
  return attribute;
}

}  // namespace loom::runtime
