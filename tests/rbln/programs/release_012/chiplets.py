import torch

import torch_loom  # noqa: F401

MIB = 1 << 20
rbln = torch.rbln
kept = torch.empty(24 * MIB, dtype=torch.uint8, device="rbln:0")
rbln.bind_device_memory(kept)
del kept
kept = torch.empty(8 * MIB, dtype=torch.uint8, device="rbln:0")
rbln.bind_device_memory(kept)

whole, parts = rbln.memory_stats(0), rbln.memory_stats_per_chiplet(0)
assert len(parts) == len(whole) * 8
assert parts["npu.0.chiplet.0.allocated.current"] == parts["npu.1.chiplet.3.allocated.current"] == MIB
assert parts["npu.1.chiplet.0.allocated.peak"] == 3 * MIB
for key, value in whole.items():
    own = [parts[f"npu.{npu}.chiplet.{chiplet}.{key}"] for npu in range(2) for chiplet in range(4)]
    assert sum(own) == value, key
assert parts["npu.0.chiplet.0.num_device_alloc"] == whole["num_device_alloc"] > 0
assert parts["npu.1.chiplet.3.num_device_alloc"] == 0

free, total = rbln.mem_get_info(0)
info = rbln.mem_get_info_per_chiplet("rbln:0")
assert sum(info[f"npu.{npu}.free"] for npu in range(2)) == free
assert sum(info[f"npu.{npu}.chiplet.{c}.total"] for npu in range(2) for c in range(4)) == total == 8 << 30
assert info["npu.1.chiplet.2.used"] == (total - free) // 8 > 0
assert info["npu.1.chiplet.2.largest_free"] == info["npu.1.chiplet.2.free"] == free // 8
assert (info["npu.0.granularity"], info["npu.0.huge_granularity"]) == (2 * MIB, 0)

table = rbln.memory_summary(0).splitlines()
columns = ["allocated", "alloc peak", "reserved", "resv peak", "active", "cached"]
assert table[2].split() == " ".join(["npu", "chiplet", *columns]).split(" ")
rows = [line.split() for line in table[4:12]]
assert [row[:2] for row in rows] == [[npu, c] for npu in "13" for c in "0123"]
assert {row[2] for row in rows} == {"1.0"} and {row[3] for row in rows} == {"3.0"}
assert table[13].split()[:3] == ["total", "8.0", "24.0"]
assert table[14] == "alloc retries: 0   ooms: 0"
# CUDA's table is under our own name.
assert "GPU reserved memory" in torch.loom.memory_summary(0)
assert kept.nbytes == 8 * MIB
