import numpy as np
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

from tests.torch import cuda_random_reference as reference
from tests.torch.programs.cuda_numbers.draws import offset

# Of equal keys each weight is 1 / columns, and the values are unit vectors: the result is the mask.
BATCH, HEADS, ROWS, COLUMNS, P, SEED = 2, 3, 40, 64, 0.25, 9


def mask(backend, dtype):
    torch.manual_seed(SEED)
    torch.rand(5, device="cuda")
    query = torch.zeros(BATCH, HEADS, ROWS, COLUMNS, device="cuda", dtype=dtype)
    key = torch.zeros(BATCH, HEADS, COLUMNS, COLUMNS, device="cuda", dtype=dtype)
    value = torch.eye(COLUMNS, device="cuda", dtype=dtype).expand_as(key).contiguous().requires_grad_()
    with sdpa_kernel(backend):
        result = scaled_dot_product_attention(query, key, value, dropout_p=P)
    scaled = (result * COLUMNS * (1 - P)).detach().float().cpu()
    assert (scaled - scaled.round()).abs().max() < 0.01
    # Backward finds the same mask: the gradient of values is its columns' sums.
    result.sum().backward()
    sums = value.grad.float().cpu()[..., 0] * COLUMNS * (1 - P)
    assert (sums - scaled.sum(-2)).abs().max() < 0.2, (sums - scaled.sum(-2)).abs().max()
    return scaled.round().numpy().astype(bool)


flash = mask(SDPBackend.FLASH_ATTENTION, torch.float16)
assert offset("cuda") == 4 + BATCH * HEADS * 32
assert np.array_equal(flash, reference.kept_by_flash(BATCH, HEADS, ROWS, COLUMNS, P, SEED, 4))

efficient = mask(SDPBackend.EFFICIENT_ATTENTION, torch.float32)
count = BATCH * HEADS * ROWS * COLUMNS
assert offset("cuda") == 4 + count
words = [reference.philox(SEED, 1 + i // 4, 0)[i % 4] for i in range(count)]
expected = np.array([reference.uniform(word) > np.float32(P) for word in words])
assert np.array_equal(efficient.reshape(-1), expected)

torch.manual_seed(SEED)
query = torch.zeros(1, 1, 8, 8, device="cuda")
scaled_dot_product_attention(query, query, query)
assert offset("cuda") == 0  # without dropout nothing is drawn
