import torch
from torch.nn.attention import sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.cuda.programs.nested_attention.operands import EFFICIENT, check, expected, nested, sequences

query = sequences(0, torch.float32)
key, value = sequences(1, torch.float32, 1, [4]), sequences(2, torch.float32, 1, [4])
one = [torch.stack(x).transpose(1, 2) for x in (key, value)]
with sdpa_kernel(EFFICIENT), torch.no_grad():
    output = attention(nested(query, torch.strided), *one)
all_heads = [[x[0].expand(-1, 4, -1)] * 3 for x in (key, value)]
check(output.unbind(), expected([query, *all_heads]))
