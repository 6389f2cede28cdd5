import warnings

import torch

loom = torch.loom
x, y = torch.ones(4, device="loom:0"), torch.ones(4, dtype=torch.float16, device="loom:2")
with warnings.catch_warnings():
    warnings.simplefilter("error")
    x.exp().erfinv()
    y + y
loom.reset_fallback_stats()
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    (y + y).exp()
    torch.ones(4, device="loom:2") * 2.0
    torch.ones(4, device="loom:0").exp()
texts = [str(warning.message) for warning in caught]
assert len(texts) == 2, texts
assert "`aten::exp` op ran on CPU" in texts[0]
assert "float32 is not a dtype of the chip 'atom'" in texts[1], texts
assert loom.fallback_stats() == {("aten::exp", None): 1, ("aten::mul", torch.float32): 1}
with loom.device(2):  # the tensor's device counts, not the current one
    torch.arange(3, dtype=torch.float16, device="loom:0").exp()
assert loom.fallback_stats()[("aten::exp", None)] == 1
