"""Copies of modules on a stage's device."""

from __future__ import annotations

from collections import OrderedDict

import torch
from torch import nn

from torch_loom.pipeline.lowering import place_modules

DEVICE = torch.device("loom")


class Holder(nn.Module):
    def __init__(self, device: str) -> None:
        super().__init__()
        self.weight = nn.Parameter(torch.ones(2, device=device))
        self.register_buffer("whole", torch.zeros(4, device=device))
        self.register_buffer("same", self.whole)
        self.register_buffer("detached", self.whole.detach())
        self.register_buffer("part", self.whole.data[1:])
        self.register_buffer("sparse", torch.eye(2, device=device).to_sparse())
        self.empty: list[int] = []
        self.also_empty = self.empty
        self.settings: OrderedDict[str, int] = OrderedDict()


def test_what_is_shared_stays_shared() -> None:
    for device in ("cpu", "loom"):
        module = Holder(device)
        first, second = place_modules([module, nn.Sequential(module)], [DEVICE, DEVICE], keep=False)
        assert isinstance(second, nn.Sequential)
        assert second[0] is first
        assert isinstance(first, Holder)
        assert first.same is first.whole
        assert first.also_empty is first.empty is not module.empty
        assert first.settings is not module.settings
        assert {one.device.type for one in (*first.buffers(), *first.parameters())} == {"loom"}
        first.whole += 1
        shown = [first.detached.sum().item(), first.part.sum().item()]
        # On the way from the host they become tensors of their own, as `Module.to` makes them.
        assert shown == ([4, 3] if device == "loom" else [0, 0])
        assert module.whole.sum().item() == 0
        assert first.sparse.to_dense().equal(torch.eye(2, device=DEVICE))
