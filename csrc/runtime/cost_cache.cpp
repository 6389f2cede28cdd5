#include "runtime/cost_cache.h"

#include <algorithm>
#include <bit>
#include <cstring>

namespace loom::runtime {

namespace {

constexpr size_t kFirstEntries = 1 << 10;
// A program whose shapes never repeat must not take the memory: then all is forgotten.
constexpr size_t kMaxEntries = 1 << 20;

class Hash : public KeyMixer {
 public:
  using KeyMixer::add;
  void add(const int64_t* values, size_t count) noexcept {
    for (size_t i = 0; i < count; ++i) add(static_cast<uint64_t>(values[i]));
  }
  void add(std::string_view text) noexcept {
    for (const char letter : text) add(static_cast<uint64_t>(static_cast<unsigned char>(letter)));
  }
  void add(std::span<const Operand> operands) noexcept {
    add(operands.size());
    for (const Operand& operand : operands) {
      const auto num_dims = static_cast<size_t>(operand.num_dims);
      add(num_dims << 16 | static_cast<uint64_t>(operand.item_bytes) << 32 |
          static_cast<uint64_t>(static_cast<uint8_t>(operand.dtype)) << 1 |
          static_cast<uint64_t>(operand.is_written));
      for (size_t dim = 0; dim < num_dims; ++dim) {
        add(static_cast<uint64_t>(operand.sizes[dim]), static_cast<uint64_t>(operand.strides[dim]));
      }
    }
  }
};

void add(Hash& hash, const Attribute& attribute) noexcept {
  using Kind = Attribute::Kind;
  hash.add(static_cast<uint64_t>(attribute.kind) | static_cast<uint64_t>(attribute.count) << 8);
  switch (attribute.kind) {
    case Kind::kNone:
      break;
    case Kind::kBool:
    case Kind::kInteger:
      hash.add(static_cast<uint64_t>(attribute.integer));
      break;
    case Kind::kReal:
    case Kind::kComplex:
      hash.add(std::bit_cast<uint64_t>(attribute.real));
      break;
    case Kind::kBools:
    case Kind::kIntegers:
      hash.add(attribute.integers, attribute.count);
      break;
    case Kind::kReals:
      for (uint32_t i = 0; i < attribute.count; ++i) hash.add(std::bit_cast<uint64_t>(attribute.reals[i]));
      break;
    case Kind::kText:
      hash.add(std::string_view(attribute.text, attribute.count));
      break;
  }
}

}  // namespace

CostCache::CostCache(const std::vector<std::string>& names)
    : names_(names), entries_(kFirstEntries), mask_(kFirstEntries - 1) {
  for (const std::string& name : names_) first_letters_ |= uint64_t{1} << (name[0] % 64);
}

bool CostCache::decides(const char* name) const noexcept {
  if ((first_letters_ >> (static_cast<unsigned char>(*name) % 64) & 1) == 0) return false;
  return std::any_of(names_.begin(), names_.end(),
                     [&](const std::string& each) { return std::strcmp(each.c_str(), name) == 0; });
}

CallKey CostCache::key_of(uint32_t chip, const Command& command) const noexcept {
  Hash hash;
  if (command.op != nullptr) {
    hash.add(static_cast<uint64_t>(chip) << 32 | command.op->id);
  } else {
    hash.add(static_cast<uint64_t>(chip) << 32);
    hash.add(std::string_view(command.name));
  }
  hash.add(command.inputs);
  hash.add(command.outputs);
  for (const Attribute& attribute : command.attributes) {
    if (decides(attribute.name)) add(hash, attribute);
  }
  return hash.key();
}

CallKey CostCache::key_of(uint32_t chip, int kind, size_t bytes) noexcept {
  Hash hash;
  hash.add(static_cast<uint64_t>(chip) << 32 | 0xffffffffu);
  hash.add(static_cast<uint64_t>(kind));
  hash.add(bytes);
  return hash.key();
}

void CostCache::insert(const CallKey& key, int64_t nanoseconds) {
  if (find(key) >= 0) return;
  if (2 * (size_ + 1) > entries_.size()) {
    const bool is_full = entries_.size() >= kMaxEntries;
    std::vector<Entry> before(is_full ? kFirstEntries : 2 * entries_.size());
    before.swap(entries_);
    mask_ = entries_.size() - 1;
    size_ = 0;
    if (!is_full) {
      for (const Entry& entry : before) {
        if (entry.nanoseconds >= 0) insert(entry.key, entry.nanoseconds);
      }
    }
  }
  size_t place = key.first & mask_;
  while (entries_[place].nanoseconds >= 0) place = (place + 1) & mask_;
  entries_[place] = {key, std::max<int64_t>(nanoseconds, 0)};
  ++size_;
}

}  // namespace loom::runtime
