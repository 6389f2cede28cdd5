import torch

from tests.device.programs.fallback.prelude import half, kept, stats
from tests.raising import raises
from torch_loom.errors import FallbackError

x = half(4)
for _ in range(2):
    words = "aten::exp: the op (here on float16) is not native to the chip 'atom'"
    raises("FallbackError", words, lambda: x.exp())
    words = "aten::add: the dtype float32 is not native to the chip 'atom'"
    raises("FallbackError", words, lambda: x.float() + 1)
    raises("FallbackError", "aten::normal_: the op is not native", lambda: torch.randn(3, device="loom"))
try:
    x.exp()
except NotImplementedError as error:
    assert isinstance(error, FallbackError)
    assert "TORCH_LOOM_FALLBACK" in str(error) and "silu" in str(error)
try:
    x.float() + 1
except FallbackError as error:
    assert "The dtypes of this chip are: float16." in str(error)
assert stats() == {} and kept.lines == []

# What is refused in a backward pass reaches who called it; the device can be used further.
torch.autograd.set_multithreading_enabled(True)
leaf = half(4).requires_grad_()
y = leaf.sigmoid()
raises("FallbackError", "aten::sigmoid_backward", lambda: y.backward(half(4)))
assert (half(4) + 1).cpu().tolist() == [1.0] * 4
with torch.loom.stream(torch.loom.Stream()):
    raises("FallbackError", "aten::exp", lambda: half(4).exp())
torch.loom.synchronize()
