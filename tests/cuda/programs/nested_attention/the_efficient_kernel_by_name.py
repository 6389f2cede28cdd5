import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

from tests.cuda.programs.nested_attention.operands import expected, sequences

efficient = torch.ops.aten._efficient_attention_forward
values = [sequences(seed, torch.float32) for seed in range(3)]
packed = [torch.cat(each)[None] for each in values]
starts = torch.tensor([0, 3, 8, 10], dtype=torch.int32, device="cuda")
output, sums, *_, max_q, max_k = efficient(*packed, None, starts, starts, 5, 5, 0.0, 1, True)
assert output.shape == packed[0].shape and sums.shape == (3, 4, 32) and (max_q, max_k) == (5, 5)
wanted = torch.cat([x.transpose(0, 1) for x in expected(values, is_causal=True)])
torch.testing.assert_close(output[0], wanted, atol=1e-5, rtol=1e-5)

dense = [torch.randn(2, 6, 4, 8, device="cuda") for _ in range(3)]
output = efficient(*dense, None, None, None, None, None, 0.0, 1, window_size=2)[0]
place = torch.arange(6, device="cuda")
distance = place[:, None] - place
query, key, value = (x.transpose(1, 2) for x in dense)
with sdpa_kernel(SDPBackend.MATH):
    wanted = attention(query, key, value, attn_mask=(distance >= 0) & (distance < 2))
torch.testing.assert_close(output.transpose(1, 2), wanted, atol=1e-5, rtol=1e-5)
for arguments, words in (
    ((*dense, None, starts, None, 5, 5, 0.0, 0), "must be given together"),
    ((*dense, None, starts, starts, 5, 5, 0.0, 0), "a batch of 1, got 2"),
    ((*packed, None, starts, starts, None, None, 0.0, 0), "max_seqlen_q must be given"),
    ((*packed, None, starts, starts[:2], 5, 5, 0.0, 0), "3 sequences of queries and 1 of keys"),
):
    try:
        efficient(*arguments)
        raise AssertionError(words)
    except RuntimeError as error:
        assert words in str(error), error
short = torch.ones(2, dtype=torch.int32, device="cuda")
try:
    efficient(*packed, None, starts, starts, 5, 5, 0.0, 0, seqlen_k=short)
    raise AssertionError("two lengths of three sequences")
except RuntimeError as error:
    assert "3 sequences, but lengths of the keys of 2" in str(error), error
