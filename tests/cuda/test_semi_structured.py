"""Products with 2:4 matrices: CUTLASS's on Ampere, cuSPARSELt's on it and later, and what each refuses."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

COMMON = """
import warnings
import torch
import torch.nn.functional as F
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured
from torch.sparse import _semi_structured_conversions as conversions

warnings.simplefilter("ignore")
draw = torch.Generator().manual_seed(0)


def sparse(rows, columns, dtype):
    # Of each pair of elements one is zero.
    kept = torch.randint(0, 2, (rows, columns // 2), generator=draw)
    mask = torch.stack([kept, 1 - kept], -1).view(rows, columns)
    return (torch.randint(1, 4, (rows, columns), generator=draw) * mask).to(dtype).cuda()


def whole(*sizes, dtype):
    return torch.randint(-2, 3, sizes, generator=draw).to(dtype).cuda()


def product(left, right):
    return left.cpu().double() @ right.cpu().double()


def equal(result, wanted, dtype):
    wanted = wanted.clamp(-128, 127).to(dtype) if dtype is torch.int8 else wanted.to(dtype)
    assert result.dtype == dtype and torch.equal(result.cpu(), wanted), (dtype, result, wanted)


def fails(text, call, error=RuntimeError):
    try:
        call()
    except error as raised:
        assert text in str(raised), raised
    else:
        raise AssertionError(text)


def check(dtype):
    matrix = sparse(128, 256, dtype)
    own = to_sparse_semi_structured(matrix)
    assert own.values().shape == (128, 128) and own.device == matrix.device
    columns = whole(64, 256, dtype=dtype).t()
    equal(own @ columns, product(matrix, columns), dtype)
    rows = whole(7, 256, dtype=dtype)  # padded
    if dtype is torch.int8:
        is_cutlass = SparseSemiStructuredTensor._FORCE_CUTLASS
        fails("Combination of row-major and row-major layouts" if is_cutlass else
              "operation not supported when calling `cusparseLtMatmulDescriptorInit",
              lambda: own @ columns.contiguous())
        return
    equal(own @ columns.contiguous(), product(matrix, columns), dtype)
    equal(rows @ own.t(), product(rows, matrix.t()), dtype)
    bias = torch.ones(128, dtype=dtype, device="cuda")
    equal(F.linear(rows.view(7, 1, 256), own, bias)[:, 0], product(rows, matrix.t()) + 1, dtype)
    assert torch.equal(own.to_dense(), matrix)
    fails("matmul: operation is not supported", lambda: torch.mm(own.t(), own.values()), NotImplementedError)


def tiles(is_cutlass):
    # No two elements of a tile are equal.
    order = torch.stack([torch.randperm(16, generator=draw) + 1 for _ in range(2048)])
    x = order.view(32, 64, 4, 4).transpose(1, 2).reshape(128, 256).half().cuda()
    pruned = conversions._sparse_semi_structured_tile(x.cpu().clone()).cuda()
    packed, meta, packed_t, meta_t, masks = torch._sparse_semi_structured_tile(x, "", is_cutlass)
    assert torch.equal(masks, conversions._compute_compressed_swizzled_bitmask(pruned).flatten(2))
    assert torch.equal(torch._sparse_semi_structured_apply_dense(x, masks), pruned)
    return x, pruned, packed, meta, packed_t, meta_t, masks
"""


def environment(chip: str) -> dict[str, str]:
    return {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB", "TORCH_LOOM_CHIP": chip}


def test_cutlass_on_ampere(fork_python: PythonRunner) -> None:
    fork_python(
        COMMON
        + """
SparseSemiStructuredTensor._FORCE_CUTLASS = True
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int8):
    check(dtype)
    matrix = sparse(64, 256, dtype)
    if dtype is not torch.float32:  # exactly two of four
        matrix = (torch.arange(256, device="cuda") % 4 < 2).to(dtype).expand(64, 256).contiguous()
    for got, wanted in zip(torch._to_sparse_semi_structured(matrix),
                           conversions.sparse_semi_structured_from_dense_cutlass(matrix), strict=True):
        assert torch.equal(got, wanted)
kept, meta = torch._to_sparse_semi_structured(matrix)
right = whole(32, 256, dtype=torch.int8).t()
for out in (torch.int32, torch.int8):
    result = torch._sparse_semi_structured_mm(kept, meta, right, out_dtype=out)
    equal(result, product(matrix, right), out)
fails("Expected meta datatype Int, but got Short",
      lambda: torch._sparse_semi_structured_mm(kept, meta.short(), right))
fails("Expected mat1 argument to have 64 columns, but got 128",
      lambda: torch._sparse_semi_structured_mm(kept, meta, right[:128]))
fails("Number of rows of dense matrix must be divisible by 32, but it is 16",
      lambda: torch._to_sparse_semi_structured(torch.ones(16, 64, device="cuda").half()))
fails("Error original_tensor.shape", lambda: to_sparse_semi_structured(sparse(2, 2, torch.float16)))

x, pruned, packed, meta, packed_t, meta_t, masks = tiles(True)
unit = torch.eye(256, device="cuda").half()
assert torch.equal(torch._sparse_semi_structured_mm(packed, meta, unit), pruned)
small = unit[:128, :128].contiguous()
assert torch.equal(torch._sparse_semi_structured_mm(packed_t, meta_t, small), pruned.t())
applied = torch._sparse_semi_structured_apply(x, masks)
assert torch.equal(applied[0], packed) and torch.equal(applied[1], packed_t)
bias = torch.full((128,), -3.0, device="cuda").half()
rows = unit.view(2, 128, 256)
line = torch._sparse_semi_structured_linear(rows, packed, meta, bias=bias, activation="relu")
assert torch.equal(line, (pruned.t() - 3).relu().view(2, 128, 128))
fails("The activation tanh is not supported",
      lambda: torch._sparse_semi_structured_linear(unit, packed, meta, activation="tanh"))
""",
        environment("a100"),
        is_autoloading=True,
    )


@pytest.mark.parametrize("chip", ["a100", "h200"])
def test_cusparselt(fork_python: PythonRunner, chip: str) -> None:
    """The default way of ``to_sparse_semi_structured``."""
    fork_python(
        COMMON
        + """
assert torch.backends.cusparselt.is_available() and torch.backends.cusparselt.version() == 801
for dtype in (torch.float16, torch.bfloat16, torch.int8):
    check(dtype)
x, pruned, packed, _, packed_t, _, _ = tiles(False)
unit = torch.eye(256, device="cuda").half()
assert torch.equal(torch._cslt_sparse_mm(packed.view(128, -1), unit), pruned)
result = torch._cslt_sparse_mm(packed_t.view(256, -1), unit[:128, :128].contiguous(), transpose_result=True)
assert torch.equal(result, pruned)

whole_numbers = torch.tensor([0, 0, 10, 10], dtype=torch.int8, device="cuda").tile((128, 64))
compressed = torch._cslt_compress(whole_numbers)
assert compressed.shape == (128, 160)  # half of the elements, and four bits for each four
right = torch.ones(128, 256, dtype=torch.int8, device="cuda").t()
scales = torch.tensor([2.0**-row for row in range(128)], device="cuda")
results = torch._cslt_sparse_mm(compressed, right, alpha=scales, out_dtype=torch.float16)
assert results[:3, 0].tolist() == [1280, 640, 320]
assert torch._cslt_sparse_mm(compressed, right, out_dtype=torch.int32).unique().tolist() == [1280]
assert torch._cslt_sparse_mm(compressed, right).unique().tolist() == [127]
assert torch._cslt_sparse_mm_search(compressed, right) == 0
fails("must be one of {fp16, bf16, int32} for int8 inputs",
      lambda: torch._cslt_sparse_mm(compressed, right, out_dtype=torch.float32))
fails("the compressed matrix has 160 columns", lambda: torch._cslt_sparse_mm(compressed, right[:128]))
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    later = torch._cslt_sparse_mm(compressed, right, out_dtype=torch.int32)
side.synchronize()
assert later.unique().tolist() == [1280]
with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    torch._cslt_sparse_mm(compressed, right, out_dtype=torch.int32)
kernels = [event.name for event in profile.events() if event.device_type == torch.autograd.DeviceType.CUDA]
assert len(kernels) == 1 and "_cslt_sparse_mm" in kernels[0], kernels
""",
        environment(chip),
        is_autoloading=True,
    )


def test_cutlass_is_refused_by_later_cards(fork_python: PythonRunner) -> None:
    fork_python(
        COMMON
        + """
SparseSemiStructuredTensor._FORCE_CUTLASS = True
own = to_sparse_semi_structured(sparse(128, 256, torch.float16))
fails("sparse_semi_structured_mad_op : Supported only on GPUs with compute capability 8.x",
      lambda: own @ whole(256, 8, dtype=torch.float16))
""",
        environment("h200"),
        is_autoloading=True,
    )


def test_how_tiles_are_pruned(fork_python: PythonRunner) -> None:
    fork_python(
        COMMON
        + """
tile = torch.tensor([[4, 3, 2, 1], [-1, -3, 0.6, 0.5], [1, 2, 3, 4], [10, 2, -1, 5]]).half().cuda()
x = F.pad(tile, (0, 124, 0, 124), value=1)
wanted = {
    "causal1122": [[1, 0, 0, 0], [0, 0, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]],
    "largest_abs_values_greedy": [[1, 1, 0, 0], [0, 1, 1, 0], [0, 0, 1, 1], [1, 0, 0, 1]],
}
for algorithm, kept in wanted.items():
    masks = torch._sparse_semi_structured_tile(x, algorithm)[4]
    pruned = torch._sparse_semi_structured_apply_dense(x, masks)
    assert (pruned[:4, :4] / tile).int().tolist() == kept, algorithm
fails('Unknown algorithm "none"', lambda: torch._sparse_semi_structured_tile(x, "none"))
fails("only `float16` and `bfloat16`", lambda: torch._sparse_semi_structured_tile(x.float()))
""",
        environment("h200"),
        is_autoloading=True,
    )
