import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention


def gradient(batch, heads, device="cuda"):
    torch.manual_seed(0)
    parts = [torch.randn(batch, heads, 5, 8).to(device) for _ in range(3)]
    bias = torch.randn(batch, heads, 5, 5).to(device).requires_grad_()
    attention(*parts, attn_mask=bias).square().sum().backward()
    return bias.grad


for sizes, words in {
    (2, 4): "LSE is not correctly aligned (strideH)",
    (2, 1): "LSE is not correctly aligned (strideB)",
    (1, 1): "SDPBackend.MATH",  # where CUDA reads memory that is not there
}.items():
    try:
        gradient(*sizes)
    except RuntimeError as error:
        assert words in str(error), error
    else:
        raise AssertionError(words)
    with sdpa_kernel(SDPBackend.MATH):
        torch.testing.assert_close(gradient(*sizes).cpu(), gradient(*sizes, device="cpu"))
