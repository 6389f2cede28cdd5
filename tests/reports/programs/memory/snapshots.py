import torch

small = torch.empty(1000, device="cuda")
snapshot = torch.cuda.memory._snapshot()
assert not any(snapshot["device_traces"])
(segment,) = snapshot["segments"]
assert (segment["total_size"], segment["segment_type"]) == (2 << 20, "small")
torch.cuda.memory._record_memory_history(max_entries=1000)
large = torch.empty(3 << 20, dtype=torch.uint8, device="cuda")
del large
snapshot = torch.cuda.memory._snapshot()
trace = snapshot["device_traces"][0]
actions = ["segment_alloc", "alloc", "free_requested", "free_completed"]
assert [entry["action"] for entry in trace] == actions
assert any(frame["filename"] == __file__ for frame in trace[-1]["frames"])
assert torch.cuda.memory_reserved() == (2 << 20) + (20 << 20)
