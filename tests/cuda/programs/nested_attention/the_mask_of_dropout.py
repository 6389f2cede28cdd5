import torch

from tests.cuda.programs.nested_attention.operands import nested, sequences

rows, dropout = 40, 0.3
query, key = (torch.randn(2, 3, rows, 8, device="cuda", dtype=torch.float16) for _ in range(2))
value = torch.eye(rows, device="cuda", dtype=torch.float16).expand(2, 3, rows, rows)
flash = torch.ops.aten._scaled_dot_product_flash_attention
key8, value8 = key, value[..., :8].contiguous()
output, *_, signed = flash(query, key8, value8, dropout, False, True)
assert signed.shape == (2, 3, 128, 128) and signed.dtype == torch.float16
kept = signed[:, :, :rows, :rows] >= 0
scores = (query.float() @ key.float().mT / 8**0.5).softmax(-1)
wanted = (scores * kept / (1 - dropout))[..., :8]
torch.testing.assert_close(output.float(), wanted, atol=2e-3, rtol=2e-2)
assert abs(kept.float().mean() - (1 - dropout)) < 0.02

single = [x.float() for x in (query, key, value8)]
output, _, seed, offset = torch.ops.aten._scaled_dot_product_efficient_attention(
    *single, None, True, dropout, False
)
numbers = torch.empty(2, 3, rows, rows, device="cuda")
torch._fill_mem_eff_dropout_mask_(numbers, dropout, seed, offset)
wanted = (scores * (numbers > dropout) / (1 - dropout))[..., :8]
torch.testing.assert_close(output, wanted, atol=1e-5, rtol=1e-4)

operands = [nested(sequences(seed, torch.float16), torch.strided).detach() for seed in range(3)]
output, *_, signed = flash(*operands, dropout, False, True)
assert signed.shape == (3, 4, 128, 128)
for i, (q, k, v, found) in enumerate(zip(*(x.unbind() for x in (*operands, output)), strict=True)):
    kept = signed[i, :, : q.size(1), : k.size(1)] >= 0
    weights = (q.float() @ k.float().mT / 8**0.5).softmax(-1) * kept / (1 - dropout)
    torch.testing.assert_close(found.float(), weights @ v.float(), atol=4e-3, rtol=4e-3)
