import resource
from collections.abc import Callable

import torch
from torch import Tensor, nn

import torch_loom  # noqa: F401

torch.manual_seed(0)


def wide(value: object) -> object:
    return value.cpu().float() if isinstance(value, Tensor) else value


def product(left: Tensor, right: Tensor) -> Tensor:
    """The product in float32, summed in the order of the depth."""
    if right.dim() == 1:
        return product(left, right.unsqueeze(1)).squeeze(1)
    a, b = wide(left), wide(right)
    sums = torch.zeros(*a.shape[:-1], b.shape[-1])
    for k in range(a.shape[-1]):  # each product is exact in float32
        sums = sums + a[..., k : k + 1] * b[..., k : k + 1, :]
    return sums


def is_rounded(result: Tensor, reference: Tensor) -> None:
    assert result.dtype is dtype and result.is_contiguous(), (result.dtype, result.stride())
    assert torch.equal(result.cpu(), reference.to(dtype)), (result.shape, dtype)


def agrees(op: Callable[..., Tensor], *operands: object, **keywords: object) -> None:
    result = op(*operands, **keywords)
    reference = op(*map(wide, operands), **keywords)
    assert result.dtype is dtype, (op, result.dtype)
    assert torch.equal(result.cpu(), reference.to(dtype)), op


for dtype in (torch.float16, torch.bfloat16):

    def some(*shape: int) -> Tensor:
        return torch.randn(shape, device="loom").to(dtype)

    for k in (1, 7, 512, 3000):
        for rows, columns in ((33, 65), (1, 40), (50, 1), (250, 9)):
            a, b = some(rows, k), some(k, columns)
            is_rounded(torch.mm(a, b), product(a, b))
            a, b = some(k, rows).t(), some(columns, k).t()
            is_rounded(torch.mm(a, b), product(a, b))
            a, b = some(rows, 2 * k)[:, ::2], some(2 * k, columns)[::2]
            is_rounded(torch.mm(a, b), product(a, b))
        a, b, c, row = some(3, 5, k), some(3, k, 9), some(3, 5, 9), some(9)
        is_rounded(torch.bmm(a, b), product(a, b))
        is_rounded(torch.bmm(b.mT, a.mT), product(b.mT, a.mT))
        is_rounded(torch.baddbmm(c, a, b, alpha=0.25), product(a, b) * 0.25 + wide(c))
        is_rounded(torch.addmm(row, a[0], b[0], beta=0.5, alpha=2), product(a[0], b[0]) * 2 + wide(row) * 0.5)
        is_rounded(torch.addmm(row * float("nan"), a[0], b[0], beta=0), product(a[0], b[0]))
        is_rounded(torch.mv(b[0].t(), a[0, 0]), product(b[0].t(), a[0, 0]))
        is_rounded(torch.addmv(row, b[0].t(), a[0, 0]), product(b[0].t(), a[0, 0]) + wide(row))
        is_rounded(
            nn.functional.linear(a, b[0].t(), row),
            product(a.flatten(0, 1), b[0]).unflatten(0, (3, 5)) + wide(row),
        )
        agrees(torch.dot, some(k), some(k))
    agrees(torch.mm, some(0, 4), some(4, 3))
    agrees(torch.mm, some(4, 0), some(0, 3))
    agrees(nn.functional.conv1d, some(2, 8, 30), some(6, 8, 3), some(6), padding=1)
    agrees(nn.functional.conv2d, some(2, 8, 14, 14), some(6, 4, 3, 3), groups=2, stride=2)
    agrees(nn.functional.conv_transpose2d, some(2, 8, 7, 7), some(8, 4, 3, 3), some(4))

    out = torch.empty(33, 65, device="loom", dtype=dtype)
    left, right = some(33, 600), some(600, 65)
    assert torch.mm(left, right, out=out) is out
    assert torch.equal(out.cpu(), product(left, right).to(dtype))
    out = some(33, 65)
    reference = (product(left, right) + wide(out)).to(dtype)
    assert out.addmm_(left, right) is out
    assert torch.equal(out.cpu(), reference)
    square = some(20, 20)
    reference = product(square, square).to(dtype)
    assert torch.equal(torch.mm(square, square, out=square).cpu(), reference)

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

# What is multiplied by 0 is not read, and sizes of expanded operands may be huge.
infinite, one = torch.full((4, 4), torch.inf, device="loom").half(), torch.ones(4, 4, device="loom").half()
assert torch.equal(torch.addmm(one, infinite, one, alpha=0), one)
huge = torch.zeros(1, 1, device="loom").half()
try:
    torch.mm(huge.expand(2**20, 1), huge.expand(1, 2**20)).cpu()
except RuntimeError as error:
    assert "memory" in str(error), error

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
