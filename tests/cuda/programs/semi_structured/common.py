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
        fails(
            "Combination of row-major and row-major layouts"
            if is_cutlass
            else "operation not supported when calling `cusparseLtMatmulDescriptorInit",
            lambda: own @ columns.contiguous(),
        )
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
