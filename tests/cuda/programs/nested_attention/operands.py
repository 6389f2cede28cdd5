import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

LENGTHS = [3, 5, 2]
FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION


def sequences(seed, dtype, heads=4, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, heads, 8, generator=generator).to("cuda", dtype) for rows in lengths]


def nested(values, layout):
    made = torch.nested.nested_tensor(values, layout=layout).transpose(1, 2)
    return made.detach().requires_grad_()


def expected(operands, is_causal=False):
    with sdpa_kernel(SDPBackend.MATH):
        return [
            attention(*(x.float().transpose(0, 1)[None] for x in each), is_causal=is_causal)[0]
            for each in zip(*operands, strict=True)
        ]


def check(outputs, wanted):
    for output, reference in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(output.float(), reference, atol=4e-3, rtol=4e-3)
