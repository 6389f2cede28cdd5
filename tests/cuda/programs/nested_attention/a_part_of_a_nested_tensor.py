import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.cuda.programs.nested_attention.operands import FLASH, check, expected, sequences

values = [sequences(seed, torch.float16) for seed in range(3)]
parts = [torch.nested.nested_tensor(each).narrow(0, 0, 2).transpose(1, 2) for each in values]
with sdpa_kernel(FLASH):
    output = attention(*parts)
check(output.unbind(), expected([each[:2] for each in values]))
