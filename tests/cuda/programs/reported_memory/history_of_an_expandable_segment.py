import torch

from tests.cuda.programs.reported_memory.prepare import MIB

torch.cuda.memory._record_memory_history()
blocks = [torch.empty(30 * MIB, dtype=torch.uint8, device="cuda") for _ in range(3)]
start = blocks[0].data_ptr()
del blocks[1]
torch.cuda.empty_cache()
snapshot = torch.cuda.memory._snapshot()
trace = [(e["action"], (e["addr"] - start) // MIB, e["size"] // MIB) for e in snapshot["device_traces"][0]]
assert trace == [
    ("segment_map", 0, 40),
    ("alloc", 0, 30),
    ("segment_map", 40, 20),
    ("alloc", 30, 30),
    ("segment_map", 60, 40),
    ("alloc", 60, 30),
    ("free_requested", 30, 30),
    ("free_completed", 30, 30),
    ("segment_unmap", 40, 20),
], trace
shown = [((s["address"] - start) // MIB, s["total_size"] // MIB) for s in snapshot["segments"]]
assert shown == [(0, 40), (60, 40)], shown
for segment in snapshot["segments"]:
    assert segment["is_expandable"]
    assert [block["state"] for block in segment["blocks"]] == ["active_allocated", "inactive"]
import torch.cuda._memory_viz as viz

assert len(viz.trace_plot(snapshot)) > 1000 and viz.segsum(snapshot)
