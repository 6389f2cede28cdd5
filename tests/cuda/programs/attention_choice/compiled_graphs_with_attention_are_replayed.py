import torch
from torch._dynamo.utils import counters
from torch.nn.functional import scaled_dot_product_attention as attention

torch.manual_seed(0)
for dtype, tolerance in ((torch.float16, 2e-2), (torch.float32, 1e-5)):
    torch._dynamo.reset()
    options = {"device": "cuda", "dtype": dtype, "requires_grad": True}
    operands = [torch.randn(2, 2, 17, 8, **options) for _ in "qkv"]

    def call(query, key, value):
        return attention(query.mul(2), key, value, is_causal=True).square()

    compiled = torch.compile(call, mode="reduce-overhead", fullgraph=True)
    for _ in range(3):
        results = []
        for function in (call, compiled):
            out = function(*operands)
            results.append([out.clone(), *torch.autograd.grad(out.float().sum(), operands)])
    torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)
assert not counters["inductor"]["cudagraph_skips"], counters["inductor"]
