import torch
from torch.sparse import SparseSemiStructuredTensor, to_sparse_semi_structured
from torch.sparse import _semi_structured_conversions as conversions

from tests.cuda.programs.semi_structured.common import check, equal, fails, product, sparse, tiles, whole

SparseSemiStructuredTensor._FORCE_CUTLASS = True
for dtype in (torch.float16, torch.bfloat16, torch.float32, torch.int8):
    check(dtype)
    matrix = sparse(64, 256, dtype)
    if dtype is not torch.float32:  # exactly two of four
        matrix = (torch.arange(256, device="cuda") % 4 < 2).to(dtype).expand(64, 256).contiguous()
    for got, wanted in zip(
        torch._to_sparse_semi_structured(matrix),
        conversions.sparse_semi_structured_from_dense_cutlass(matrix),
        strict=True,
    ):
        assert torch.equal(got, wanted)
kept, meta = torch._to_sparse_semi_structured(matrix)
right = whole(32, 256, dtype=torch.int8).t()
for out in (torch.int32, torch.int8):
    result = torch._sparse_semi_structured_mm(kept, meta, right, out_dtype=out)
    equal(result, product(matrix, right), out)
fails(
    "Expected meta datatype Int, but got Short",
    lambda: torch._sparse_semi_structured_mm(kept, meta.short(), right),
)
fails(
    "Expected mat1 argument to have 64 columns, but got 128",
    lambda: torch._sparse_semi_structured_mm(kept, meta, right[:128]),
)
fails(
    "Number of rows of dense matrix must be divisible by 32, but it is 16",
    lambda: torch._to_sparse_semi_structured(torch.ones(16, 64, device="cuda").half()),
)
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
fails(
    "The activation tanh is not supported",
    lambda: torch._sparse_semi_structured_linear(unit, packed, meta, activation="tanh"),
)
