"""Products of matrices whose result is wider than their operands: `torch.mm(…, out_dtype=)`."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor

from torch_loom import _C

HALVES = [torch.float16, torch.bfloat16]


def matrices(dtype: torch.dtype, *batch: int) -> tuple[Tensor, Tensor, Tensor]:
    generator = torch.Generator().manual_seed(0)
    shapes = ((*batch, 3, 5), (*batch, 5, 4), (*batch, 3, 4))
    left, right, added = (torch.randn(shape, generator=generator).to(dtype) for shape in shapes)
    return left, right, added


@pytest.mark.parametrize("dtype", HALVES)
@pytest.mark.parametrize("on_side_stream", [False, True])
def test_products_are_not_rounded_to_their_operands_dtype(dtype: torch.dtype, on_side_stream: bool) -> None:
    left, right, added = matrices(dtype)
    batches = matrices(dtype, 2)
    stream = torch.loom.Stream() if on_side_stream else torch.loom.current_stream()
    with torch.loom.stream(stream):
        found = [
            torch.mm(left.to("loom"), right.to("loom"), out_dtype=torch.float32),
            torch.addmm(*(x.to("loom") for x in (added, left, right)), out_dtype=torch.float32, beta=2),
            torch.bmm(*(x.to("loom") for x in batches[:2]), out_dtype=torch.float32),
            torch.baddbmm(
                *(x.to("loom") for x in (batches[2].float(), *batches[:2])), out_dtype=torch.float32, alpha=3
            ),
        ]
    stream.synchronize()
    wanted = [
        left.float() @ right.float(),
        torch.addmm(added.float(), left.float(), right.float(), beta=2),
        torch.bmm(batches[0].float(), batches[1].float()),
        torch.baddbmm(batches[2].float(), batches[0].float(), batches[1].float(), alpha=3),
    ]
    for here, there in zip(found, wanted, strict=True):
        torch.testing.assert_close(here.cpu(), there, rtol=1e-6, atol=1e-6)


def test_a_product_is_one_command() -> None:
    left, right, _ = (x.to("loom") for x in matrices(torch.float16))
    names = []
    reader = _C.TapeReader(lambda kind, device, stream, name, *rest: names.append(name))
    reader.attach()
    try:
        torch.mm(left, right, out_dtype=torch.float32)
    finally:
        reader.detach()
    assert [name for name in names if name.startswith("aten::")] == ["aten::mm.dtype"]


def test_a_result_is_given() -> None:
    left, right, _ = (x.to("loom") for x in matrices(torch.bfloat16))
    out = torch.empty(0, device="loom")
    assert torch.mm(left, right, torch.float32, out=out) is out
    torch.testing.assert_close(out.cpu(), left.cpu().float() @ right.cpu().float(), rtol=1e-6, atol=1e-6)
    with pytest.raises(RuntimeError, match="expected out to have the dtype Float, got Half"):
        torch.mm(left, right, torch.float32, out=torch.empty(3, 4, device="loom", dtype=torch.float16))


def test_what_cuda_refuses_is_refused() -> None:
    left, right, added = (x.to("loom") for x in matrices(torch.float16))
    with pytest.raises(RuntimeError, match="out_dtype must be the same as input dtype or fp32"):
        torch.mm(left, right, out_dtype=torch.float64)
    with pytest.raises(RuntimeError, match="to have the same dtype"):
        torch.mm(left, right.bfloat16(), out_dtype=torch.float32)
    with pytest.raises(RuntimeError, match="self dtype must match either out_dtype or mat1 dtype"):
        torch.addmm(added.double(), left, right, out_dtype=torch.float32)
