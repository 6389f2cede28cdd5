import torch

with torch.Stream("loom"):
    for _ in range(3):
        x = torch.ones((), device="loom") + 1e-6
    assert x.dtype == torch.float32, x.dtype
    assert abs(x.item() - 1) < 1e-3, "read on the stream that wrote it"
