// What each file of this room adds to torch_loom._C, as torch_loom/_C.pyi declares it.
#pragma once

#include <pybind11/pybind11.h>

namespace loom::glue {

void bind_busy(pybind11::module_& m);
void bind_captured_calls(pybind11::module_& m);
// Copies of the allocator's state.
void bind_checkpoints(pybind11::module_& m);
// Simulated time, whose costs Python knows.
void bind_clock(pybind11::module_& m);
void bind_compiled_kernels(pybind11::module_& m);
// The backend of torch.distributed; csrc/distributed has it.
void bind_distributed(pybind11::module_& m);
// The ops in progress, and what fell back.
void bind_explain(pybind11::module_& m);
void bind_graphs(pybind11::module_& m);
// torch.loom.set_sync_debug_mode.
void bind_implicit_sync(pybind11::module_& m);
// Storages and events of other processes.
void bind_ipc(pybind11::module_& m);
// Device memory: statistics, the cache, private pools, snapshots.
void bind_memory(pybind11::module_& m);
void bind_memory_history(pybind11::module_& m);
// Ranges of NVTX, and torch.loom.profiler's gate.
void bind_nvtx(pybind11::module_& m);
// What the op table says of an op, and where inferred outputs came from.
void bind_ops(pybind11::module_& m);
void bind_registration(pybind11::module_& m);
void bind_streams(pybind11::module_& m);
void bind_tape(pybind11::module_& m);
// Memory of trees of graphs.
void bind_trees(pybind11::module_& m);

}  // namespace loom::glue
