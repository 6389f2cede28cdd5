import gc

import torch

from tests.raising import raises

loom = torch.loom
kept = []
for i in range(30):
    with loom.dry_run(chip="h200", devices=4) as plan:
        x = torch.empty(1 << 30, device=f"loom:{i % 4}")
        y = torch.empty(8, device="loom:3")
        (x + 1, y + 1)
        if i % 10 == 0:
            kept.append((x, x[1:].view(-1), torch.nn.Linear(4, 4).to("loom:3"), y))
    del x, y
x, view, module, y = kept[0]
assert x.shape == (1 << 30,) and view.shape == ((1 << 30) - 1,) and x.dtype == torch.float32
assert str(module.weight.device) == "loom:3" and x.T.stride() == (1,)
host, own = torch.ones(8), torch.ones(8, device="loom")
for call in (
    lambda: x + 1,  # noqa: F821
    lambda: y.cpu(),  # noqa: F821
    lambda: y[0].item(),  # noqa: F821
    lambda: repr(y),  # noqa: F821
    lambda: module(own),  # noqa: F821
    lambda: y.zero_(),  # noqa: F821
    lambda: y.copy_(host),  # noqa: F821
    lambda: own.copy_(y),  # noqa: F821
):
    try:
        call()
    except RuntimeError as error:
        assert "has ended" in str(error), error
    else:
        raise AssertionError(call)
with loom.dry_run(devices=4):
    raises("RuntimeError", "another dry run", lambda: y + 1)  # noqa: F821
    del x, view, module, y
    kept.pop()
    gc.collect()
kept.clear()
gc.collect()
with loom.dry_run(devices=1):
    torch.ones(4, device="loom").sum()
assert torch.ones(4, device="loom").sum().item() == 4
