import warnings

import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.cuda.programs.nested_attention.operands import EFFICIENT, FLASH, nested, sequences


def chosen(*operands):
    return SDPBackend(torch._fused_sdp_choice(*operands))


def made(dtype, grad, **options):
    values = [sequences(seed, dtype, **options) for seed in range(3)]
    return [nested(each, torch.strided).requires_grad_(grad) for each in values]


assert chosen(*made(torch.float16, True)) == FLASH
assert chosen(*made(torch.float32, False)) == EFFICIENT
assert chosen(*made(torch.float32, True)) == SDPBackend.MATH
assert chosen(*made(torch.float16, False, lengths=[3, 0])) == SDPBackend.MATH
with warnings.catch_warnings(record=True) as told, sdpa_kernel(EFFICIENT):
    warnings.simplefilter("always")
    try:
        attention(*made(torch.float32, True))
        raise AssertionError("no kernel trains these")
    except RuntimeError as error:
        assert "No available kernel" in str(error), error
assert any("doesn't support training with NT inputs" in str(each.message) for each in told)
