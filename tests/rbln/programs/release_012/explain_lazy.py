import torch

import torch_loom  # noqa: F401

rbln = torch.rbln
x = torch.ones(64, dtype=torch.float16, device="rbln")
with rbln.explain() as first:
    x + x
with rbln.explain() as second:
    x + x
pushed = [p.dump()["runtime_residency"]["real_host_sync_h2d"] for p in (first, second)]
assert pushed == [{"count": 1, "bytes": 128}, {"count": 0, "bytes": 0}]
assert "tensors that took device memory: 1, 128 B" in first.report()
assert first.diff(second).dump()["gone"] == ["runtime/h2d_push"]
