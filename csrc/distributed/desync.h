// What TORCH_NCCL_DESYNC_DEBUG asks for: each rank writes into the group's store which collective it has
// begun and ended, and a rank whose time is over says where the others stood, in PyTorch's words.
#pragma once

#include <string>
#include <torch/csrc/distributed/c10d/Store.hpp>

#include "distributed/operation.h"

namespace loom::distributed {

class DesyncTrace {
 public:
  DesyncTrace(const c10::intrusive_ptr<c10d::Store>& store, int rank, int num_ranks);

  void begin(const Operation& operation) { write(operation, true); }
  void end(const Operation& operation) { write(operation, false); }
  std::string report();

 private:
  void write(const Operation& operation, bool begins);

  c10::intrusive_ptr<c10d::Store> store_;
  const int rank_, num_ranks_;
};

}  // namespace loom::distributed
