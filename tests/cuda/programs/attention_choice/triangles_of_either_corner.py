import torch
from torch.nn.attention.bias import causal_lower_right, causal_upper_left
from torch.nn.functional import scaled_dot_product_attention as attention

torch.manual_seed(0)
for dtype, tolerance in ((torch.float16, 1e-2), (torch.float32, 1e-5)):  # flash, memory-efficient
    for corner in (causal_lower_right, causal_upper_left):
        shapes = ((2, 2, 5, 8), (2, 2, 9, 8), (2, 2, 9, 8))
        own = [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes]
        plain = [one.detach().float().cpu().requires_grad_() for one in own]
        got, bias = attention(*own, attn_mask=corner(5, 9)), corner(5, 9)
        expected = attention(*plain, attn_mask=bias._materialize("cpu"))
        torch.testing.assert_close(got.float().cpu(), expected, rtol=tolerance, atol=tolerance)
        gradients = torch.autograd.grad(got.float().square().sum(), own)
        for ours, theirs in zip(gradients, torch.autograd.grad(expected.square().sum(), plain), strict=True):
            torch.testing.assert_close(ours.float().cpu(), theirs, rtol=10 * tolerance, atol=10 * tolerance)
