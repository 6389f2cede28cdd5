import torch
from torch import nn
from torch.nn import functional as F

from tests.compiler.programs.compiled_training.common import compare


class Calls(nn.Module):
    def forward(self, q, k, v, few, mask, causal):
        p = 0.2 if self.training else 0.0
        call = F.scaled_dot_product_attention
        return (
            call(q, k, v, is_causal=True, dropout_p=p),
            call(q, k, v, attn_mask=mask, dropout_p=p),
            call(q, k, v, attn_mask=mask.detach()),
            call(q, k, v, attn_mask=causal, dropout_p=p),
            call(q, few, few, enable_gqa=True, dropout_p=p),
        )


heads = [torch.randn(2, 4, 6, 16) for _ in range(3)]
lying = [torch.randn(2, 6, 4, 16).transpose(1, 2) for _ in range(3)]
rest = torch.randn(2, 2, 6, 16), torch.randn(2, 4, 6, 6), torch.ones(6, 6, dtype=torch.bool).tril()
compare(Calls(), *heads, *rest)
compare(Calls(), *lying, *rest)
