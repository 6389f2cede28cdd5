import ast
import sys

import torch
from torch.nn.attention.flex_attention import create_block_mask, flex_attention

torch.manual_seed(0)
slopes = torch.rand(4, device="cuda", requires_grad=True)


def tilted(score, batch, head, query, key):
    return score + slopes[head] * (key - query)


def near(batch, head, query, key):
    return (query >= key) & (query - key < 40)


def check(rows, columns, heads, dtype=torch.float32, score_mod=None, blocks=True, **options):
    torch._dynamo.reset()
    shapes = ((2, 4, rows, 16), (2, heads, columns, 16), (2, heads, columns, 16))
    operands = [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes]
    given = {
        "score_mod": score_mod,
        "block_mask": create_block_mask(near, None, None, rows, columns, device="cuda") if blocks else None,
        "enable_gqa": heads != 4,
    }
    compiled = torch.compile(flex_attention, fullgraph=True, **options)
    for _ in range(3):
        results = []
        for function in (flex_attention, compiled):
            out = function(*operands, **given)
            wanted = [*operands, *([slopes] if score_mod else [])]
            results.append([out.clone(), *torch.autograd.grad(out.float().square().sum(), wanted)])
    tolerance = 1e-4 if dtype == torch.float32 else 5e-2
    torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)


CALLS = {
    "plain": lambda: check(64, 64, 4, blocks=False),
    "tilted": lambda: check(100, 100, 4, torch.float16, tilted),
    "grouped": lambda: check(64, 200, 2, dynamic=True),
    "replayed": lambda: check(64, 64, 4, score_mod=tilted, mode="reduce-overhead"),
}
CALLS[ast.literal_eval(sys.argv[1])]()
