import warnings

import torch

from tests.device.programs.fallback.prelude import half, stats

with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    for _ in range(3):
        half(4).exp()
    torch.ones(4, device="loom") * 2
texts = [str(one.message) for one in caught]
assert [one.category.__name__ for one in caught] == ["FallbackWarning"] * 2, caught
assert texts[0] == "`aten::exp` op ran on CPU instead of LOOM"
assert caught[0].filename == __file__, caught[0].filename
assert stats() == {("exp", None): 3, ("mul", torch.float32): 1}
