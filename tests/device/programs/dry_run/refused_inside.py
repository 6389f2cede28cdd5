import torch
from torch import nn

loom = torch.loom
outer = torch.ones(4, 4, device="loom")
model = nn.Linear(4, 4).to("loom")
lazy = torch.empty(4, 4, device="loom")
pending = model(outer).sum()
with loom.dry_run(devices=3) as plan:
    inner = torch.ones(4, 4, device="loom")
    sdpa = nn.functional.scaled_dot_product_attention
    calls = {
        "both": lambda: inner + outer,
        "alone": lambda: outer + 1,
        "in place": lambda: outer.add_(1),
        "boxed": lambda: torch.linalg.qr(outer),
        "list": lambda: torch.cat([inner, outer]),
        "foreach": lambda: torch._foreach_add([outer], 1),
        "copy in": lambda: inner.copy_(outer),
        "copy out": lambda: outer.copy_(inner),
        "to host": lambda: outer.cpu(),
        "from host": lambda: outer.copy_(torch.ones(4, 4)),
        "item": lambda: outer[0, 0].item(),
        "module": lambda: model(inner),
        "backward": lambda: pending.backward(),
        "peer": lambda: outer.to("loom:1"),
        "fill": lambda: outer.fill_(2),
        "zero": lambda: outer.zero_(),
        "random": lambda: outer.normal_(),
        "resize": lambda: outer.resize_(100),
        "attention": lambda: sdpa(outer[None], inner[None], inner[None]),
        "sparse": lambda: outer.to_sparse(),
        "lazy": lambda: lazy.fill_(1),
        "record": lambda: outer.record_stream(loom.current_stream()),
    }
    for name, call in calls.items():
        try:
            call()
        except RuntimeError as error:
            assert "dry_run" in str(error) or "dry run" in str(error), (name, error)
            assert "inside" in str(error), (name, error)
        else:
            raise AssertionError(name)
    # What needs no memory works: shapes, views.
    assert outer.T[1:].shape == (3, 4) and outer.view(2, 8).stride() == (8, 1)
    assert torch.empty_like(outer).shape == (4, 4)
    inner.add_(1)
assert (outer + 1).sum().item() == 32
pending.backward()
assert model.weight.grad.shape == (4, 4)
