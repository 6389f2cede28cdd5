import torch
from fla.ops.linear_attn import fused_recurrent_linear_attn

q, k, v = (torch.randn(1, 8, 2, 16, device="cuda") for _ in range(3))
found, _ = fused_recurrent_linear_attn(q, k, v, normalize=False)
scores = torch.einsum("bihd,bjhd->bhij", q * 16**-0.5, k).tril()
torch.testing.assert_close(found, torch.einsum("bhij,bjhd->bihd", scores, v), rtol=1e-3, atol=1e-3)
