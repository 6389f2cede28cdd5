// A kernel's description that outlives the call: what a graph reports at each replay.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "runtime/commands.h"

namespace loom::runtime {

class KeptRecord {
 public:
  KeptRecord() = default;
  KeptRecord(const KernelRecord& record, std::span<const Operand> outputs);
  // Moved, what it holds stays where it is.
  KeptRecord(KeptRecord&&) noexcept = default;
  KeptRecord& operator=(KeptRecord&&) noexcept = default;

  KernelRecord record() const { return {op_, inputs_, attributes_}; }
  std::span<const Operand> outputs() const { return outputs_; }

 private:
  Operand keep(Operand operand);
  Attribute keep(Attribute attribute);

  const OpRecord* op_ = nullptr;
  std::vector<Operand> inputs_, outputs_;
  std::vector<Attribute> attributes_;
  // What they point to: of a size that is known before the first is kept, so that it never moves.
  std::vector<int64_t> integers_;
  std::vector<double> reals_;
  std::vector<char> text_;
};

}  // namespace loom::runtime
