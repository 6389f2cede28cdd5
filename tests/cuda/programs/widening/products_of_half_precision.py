import resource
from collections.abc import Callable

import torch
from torch import Tensor, nn

import torch_loom  # noqa: F401

torch.manual_seed(0)


def wide(value: object) -> object:
    return value.cpu().float() if isinstance(value, Tensor) else value


def agrees(op: Callable[..., Tensor], *operands: object, **keywords: object) -> None:
    result = op(*operands, **keywords)
    reference = op(*map(wide, operands), **keywords)
    assert result.dtype is dtype, (op, result.dtype)
    assert torch.equal(result.cpu(), reference.to(dtype)), op


for dtype in (torch.float16, torch.bfloat16):

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, device="loom").to(dtype)

    for k in (1, 7, 512, 3000):
        agrees(torch.mm, some(33, k), some(k, 65))
        agrees(torch.mm, some(k, 33).t(), some(65, k).t())
        agrees(torch.bmm, some(3, 5, k), some(3, k, 9))
        agrees(torch.addmm, some(9), some(5, k), some(k, 9), beta=0.5, alpha=2)
        agrees(torch.baddbmm, some(3, 5, 9), some(3, 5, k), some(3, k, 9), alpha=0.25)
        agrees(torch.mv, some(9, k), some(k))
        agrees(torch.addmv, some(9), some(9, k), some(k))
        agrees(torch.dot, some(k), some(k))
        agrees(nn.functional.linear, some(4, 5, k), some(9, k), some(9))
    agrees(torch.mm, some(0, 4), some(4, 3))
    agrees(torch.mm, some(4, 0), some(0, 3))
    agrees(nn.functional.conv1d, some(2, 8, 30), some(6, 8, 3), some(6), padding=1)
    agrees(nn.functional.conv2d, some(2, 8, 14, 14), some(6, 4, 3, 3), groups=2, stride=2)
    agrees(nn.functional.conv_transpose2d, some(2, 8, 7, 7), some(8, 4, 3, 3), some(4))

    out = torch.empty(33, 65, device="loom", dtype=dtype)
    left, right = some(33, 600), some(600, 65)
    assert torch.mm(left, right, out=out) is out
    assert torch.equal(out.cpu(), (wide(left) @ wide(right)).to(dtype))
    out = some(33, 65)
    reference = wide(out).addmm_(wide(left), wide(right)).to(dtype)
    assert torch.equal(out.addmm_(left, right).cpu(), reference)

    layer = nn.Conv2d(8, 4, 3, padding=1).to("loom", dtype)
    given = some(2, 8, 12, 12).to(memory_format=torch.channels_last).requires_grad_()
    result = layer(given)
    assert result.is_contiguous(memory_format=torch.channels_last)
    result.backward(upstream := some(2, 4, 12, 12))
    own = nn.Conv2d(8, 4, 3, padding=1)
    own.load_state_dict({name: wide(value) for name, value in layer.state_dict().items()})
    own_given = wide(given.detach()).requires_grad_()
    own(own_given).backward(wide(upstream))
    for one, other in ((given, own_given), (layer.weight, own.weight), (layer.bias, own.bias)):
        torch.testing.assert_close(one.grad.cpu().float(), other.grad, rtol=1e-2, atol=1e-2)

# Of an operand that repeats its memory, the memory is converted: a dense float32 copy would take 1 GiB.
once = torch.rand(512, 512, device="loom").bfloat16()
many, columns = once.expand(1024, 512, 512), torch.rand(1024, 512, 1, device="loom").bfloat16()
torch.bmm(many[:2], columns[:2]).cpu()
before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
result = torch.bmm(many, columns).cpu()
assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 256 << 10  # KiB
assert torch.equal(result[7], torch.mv(once, columns[7, :, 0]).unsqueeze(1).cpu())
windows = torch.rand(40, device="loom").half().unfold(0, 16, 2)
assert torch.equal(windows @ windows.T, windows.contiguous() @ windows.contiguous().T)

# Products promote nothing: neither what they write to nor a scalar may be of another dtype.
for dtype in (torch.float16, torch.bfloat16):
    square = torch.rand(4, 4, device="loom").to(dtype)
    batch = square.unsqueeze(0)
    other, scalar = torch.zeros(4, 4, device="loom"), torch.zeros((), device="loom")
    for call in (
        lambda: torch.mm(square, square, out=other),
        lambda: torch.addmm(square, square, square, out=other),
        lambda: torch.bmm(batch, batch, out=other.unsqueeze(0)),
        lambda: torch.addmm(scalar, square, square),
        lambda: torch.addmv(scalar, square, square[0]),
        lambda: torch.baddbmm(other.unsqueeze(0), batch, batch),
        lambda: torch.mm(square, other),
        lambda: torch.dot(square[0], other[0]),
    ):
        try:
            call()
        except RuntimeError as error:
            assert "dtype" in str(error), error
        else:
            raise AssertionError("it took another dtype")
