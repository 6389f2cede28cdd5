"""Graphs keep the default dtype of their capture, in which integers are divided."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

import torch_loom.device as loom

PROMOTED: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "quotient": lambda x, _: x / 3,
    "product with a fraction": lambda x, _: x * 2.5,
    "complex": lambda x, _: x * 1j,
    "function": lambda x, _: x.sqrt(),
    "list": lambda x, _: torch._foreach_div([x, x], 3)[1],
    "reduction": lambda x, _: torch.logsumexp(x, 0),
    "mask": lambda _, mask: mask * 2.5,
    "mask as condition": lambda x, mask: torch.where(mask, x, x + 1) / 7,
    "power": lambda x, _: 2.5**x,
    "to a dtype": lambda x, _: x.sum(dtype=torch.float64),
    "whole": lambda x, _: x * (x + (1 << 40)),
    "with fractions": lambda x, mask: x.half() * x + mask,
}


@pytest.mark.parametrize("name", PROMOTED)
def test_a_graph_keeps_the_default_dtype_of_its_capture(name: str) -> None:
    host = torch.tensor([1 << 40, 1, 2, 3])
    x, mask = host.to("loom"), (host > 1).to("loom")
    try:
        for captured, replayed in ((torch.float32, torch.float64), (torch.float64, torch.float32)):
            torch.set_default_dtype(captured)
            wanted = PROMOTED[name](host, host > 1)
            graph = loom.LoomGraph()
            with loom.graph(graph):
                result = PROMOTED[name](x, mask)
            torch.set_default_dtype(replayed)
            for _ in range(2):
                graph.replay()
                assert result.dtype == wanted.dtype
                assert torch.equal(result.cpu(), wanted)
    finally:
        torch.set_default_dtype(torch.float32)


def test_a_graph_that_writes_fractions_in_a_dtype_of_its_own_says_so() -> None:
    x, out = torch.arange(1, 4, device="loom"), torch.empty(3, dtype=torch.float64, device="loom")
    graph = loom.LoomGraph()
    sums = torch.empty(3, device="loom")
    with loom.graph(graph):
        torch.add(x, 1, out=sums)  # computes with whole numbers in any case
        torch.div(x, 3, out=out)

    def replay() -> None:
        graph.replay()
        loom.synchronize()

    try:
        torch.set_default_dtype(torch.float64)
        with pytest.raises(RuntimeError, match="issued when the default dtype was Float, which is Double"):
            replay()
        assert sums.tolist() == [2, 3, 4]
    finally:
        torch.set_default_dtype(torch.float32)
    replay()
    assert torch.equal(out.cpu(), torch.arange(1, 4).div(3).double())
