"""Sums into a few places, twice each: prints of each op the bits of its results."""

import json

import torch

generator = torch.Generator().manual_seed(0)
index = torch.randint(0, 3, (4000,), generator=generator).cuda()
values = torch.randn(4000, 2, generator=generator).cuda()
expected = torch.zeros(3, 2, dtype=torch.float64).index_add_(0, index.cpu(), values.cpu().double())


def put() -> torch.Tensor:
    flat = index.mul(2).unsqueeze(1).add(torch.arange(2, device="cuda")).flatten()
    return torch.zeros(3, 2, device="cuda").put_(flat, values.flatten(), accumulate=True)


wide = index.unsqueeze(1).expand(-1, 2)
CALLS = {
    "index_add": lambda: torch.index_add(torch.zeros(3, 2, device="cuda"), 0, index, values),
    "index_add_": lambda: torch.zeros(3, 2, device="cuda").index_add_(0, index, values),
    "scatter_add": lambda: torch.scatter_add(torch.zeros(3, 2, device="cuda"), 0, wide, values),
    "scatter_add_": lambda: torch.zeros(3, 2, device="cuda").scatter_add_(0, wide, values),
    "scatter_reduce": lambda: torch.zeros(3, 2, device="cuda").scatter_reduce(0, wide, values, "sum"),
    "put_": put,
    "bincount": lambda: torch.stack([torch.bincount(index, values[:, i]) for i in range(2)], 1),
}
whole = values.mul(1000).long()
found = {}
for name, call in CALLS.items():
    results = [call().cpu() for _ in range(4)]
    for result in results:
        torch.testing.assert_close(result.double(), expected, rtol=1e-4, atol=1e-4)
    patterns = [result.view(torch.int32).tolist() for result in results]
    found[name] = patterns
    sums = {
        tuple(
            torch.zeros(3, 2, dtype=torch.int64, device="cuda").index_add_(0, index, whole).flatten().tolist()
        )
    }
    assert sums == {
        tuple(torch.zeros(3, 2, dtype=torch.int64).index_add_(0, index.cpu(), whole.cpu()).flatten().tolist())
    }
# What does not fit is refused as in other modes.
short, long = torch.zeros(4, dtype=torch.int64, device="cuda"), torch.ones(5, device="cuda")
for call in (
    lambda: torch.zeros(3, device="cuda").index_add_(0, short, long),
    lambda: torch.zeros(3, device="cuda").put_(short, long, accumulate=True),
    lambda: torch.bincount(short, long),
    lambda: torch.zeros(3, device="cuda").scatter_add_(
        0, torch.zeros(6, dtype=torch.int64, device="cuda"), long
    ),
    lambda: torch.zeros(3, device="cuda").index_add_(1, short, long[:4]),
):
    try:
        call()
        torch.cuda.synchronize()
    except (RuntimeError, IndexError):
        continue
    raise AssertionError("nothing was raised")
torch.use_deterministic_algorithms(True)
assert len({tuple(CALLS["index_add"]().flatten().tolist()) for _ in range(3)}) == 1
assert len({tuple(CALLS["scatter_add"]().flatten().tolist()) for _ in range(3)}) == 1
print(json.dumps(found))
