import torch
from torch.backends import cuda
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention


def operands(dtype=torch.float16, rows=6, columns=6, width=8, heads=2):
    def tensor(time, heads):
        return torch.rand(1, heads, time, width, device="cuda", dtype=dtype)

    return tensor(rows, 2), tensor(columns, heads), tensor(columns, heads)


def chosen(*given, **options):
    return SDPBackend(torch._fused_sdp_choice(*given, **options))


flash, efficient, math = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
half, single, double = operands(), operands(torch.float32), operands(torch.float64)
mask = torch.zeros(6, 6, device="cuda", dtype=torch.float16)
assert chosen(*half) == chosen(*operands(torch.bfloat16)) == flash
assert chosen(*half, attn_mask=mask) == chosen(*single) == efficient
assert chosen(*double) == math
assert chosen(*operands(width=256)) == flash and chosen(*operands(width=264)) == efficient
assert chosen(*operands(torch.float32, width=6)) == math  # rows of 24 bytes
assert chosen(*operands(columns=9), is_causal=True) == efficient
assert chosen(*operands(heads=1), enable_gqa=True) == flash
assert chosen(*operands(torch.float32, heads=1), enable_gqa=True) == math
assert chosen(*operands(rows=0)) == math
row, of_heads = (torch.zeros(shape, device="cuda").half() for shape in ((6,), (2, 1, 6)))
assert chosen(*half, attn_mask=row) == chosen(*half, attn_mask=of_heads) == efficient
assert attention(*half, attn_mask=row).shape == (1, 2, 6, 8)
strided = [one.transpose(-1, -2).contiguous().transpose(-1, -2) for one in half]
assert chosen(*strided) == math

with sdpa_kernel([math, efficient], set_priority=True):
    assert chosen(*half) == math
cudnn = SDPBackend.CUDNN_ATTENTION
with sdpa_kernel([cudnn, flash], set_priority=True):
    assert chosen(*half) == chosen(*half, attn_mask=mask) == chosen(*half, dropout_p=0.125) == cudnn
    assert chosen(*half, dropout_p=0.1) == chosen(*operands(width=136)) == flash
for call in ({}, {"is_causal": True}, {"attn_mask": mask[:, :1] - 1}, {"scale": 0.5}):
    found = []
    for kernel in (cudnn, math):
        given = [one.detach().clone().requires_grad_() for one in half]
        with sdpa_kernel(kernel):
            output = attention(*given, **call)
        (output * torch.arange(8, device="cuda")).sum().backward()
        found.append([output, *(one.grad for one in given)])
    assert "Cudnn" in type(found[0][0].grad_fn).__name__, found[0][0].grad_fn
    assert all(torch.allclose(a, b, atol=0.05, rtol=0.01) for a, b in zip(*found, strict=True)), call


def named(operands, **more):
    return dict(zip(("query", "key", "value"), operands, strict=True), **more)


reasons = {
    (flash, "dtype: {Half, BFloat16}"): named(single),
    (flash, "does not support non-null attn_mask"): named(half, attn_mask=mask),
    (flash, "less than or equal to 256"): named(operands(width=264)),
    (efficient, "divisible by 4"): named(operands(torch.float32, width=6)),
    (cudnn, "dtype: {Half, BFloat16}"): named(single),
    (cudnn, "no more than 128"): named(operands(width=136)),
    (cudnn, "multiple of 8"): named(operands(width=12)),
    (cudnn, "sequence length 1"): named(operands(columns=1)),
    (cudnn, "multiple of 1/16"): named(half, dropout_p=0.1),
}
import warnings

for (kernel, reason), call in reasons.items():
    with warnings.catch_warnings(record=True) as told, sdpa_kernel(kernel):
        warnings.simplefilter("always")
        try:
            attention(**call)
        except RuntimeError as error:
            assert "No available kernel. Aborting execution." in str(error), error
        else:
            raise AssertionError(f"{kernel} ran: {reason}")
    warned = [str(one.message) for one in told]
    assert any(reason in each for each in warned), (reason, warned)
with sdpa_kernel(SDPBackend.ERROR):
    try:
        attention(*half)
    except RuntimeError as error:
        assert "No viable backend" in str(error), error
    else:
        raise AssertionError("ran without a kernel")

torch.use_deterministic_algorithms(True, warn_only=True)
for kernel, words in ((flash, "Flash Attention"), (efficient, "Memory Efficient attention")):
    with warnings.catch_warnings(record=True) as told, sdpa_kernel(kernel):
        warnings.simplefilter("always")
        attention(*[one.clone().requires_grad_() for one in half]).sum().backward()
    assert any(f"{words} defaults to a non-det" in str(one.message) for one in told), kernel
torch.use_deterministic_algorithms(True)
with sdpa_kernel([cudnn, math], set_priority=True):
    assert chosen(*half) == math
torch.use_deterministic_algorithms(False)

parameters = cuda.SDPAParams(*half, None, 0.0, False, False)
assert cuda.is_flash_attention_available()
assert cuda.can_use_flash_attention(parameters) and cuda.can_use_efficient_attention(parameters)
assert cuda.can_use_cudnn_attention(parameters)
