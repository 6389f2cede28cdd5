"""A device's modules as one module, and their graph as torch.fx has it."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import fx, nn

from torch_loom.pipeline import Stage
from torch_loom.pipeline.transfer import flatten_outputs
from torch_loom.pybuda.tensor import Tensor


class InOrder(nn.Module):
    """The modules of a stage, one after another."""

    def __init__(self, modules: Iterable[nn.Module]) -> None:
        super().__init__()
        self.parts = nn.ModuleList(modules)

    def forward(self, *values: torch.Tensor, **named: torch.Tensor) -> tuple[torch.Tensor, ...]:
        for part in self.parts:
            values, named = flatten_outputs(part(*values, **named)), {}
        return values


def traced(
    stage: Stage, inputs: Sequence[Tensor], targets: Sequence[Tensor], name: str
) -> tuple[fx.Graph, tuple[Tensor, ...], dict[str, Tensor]]:
    """Return the graph, the outputs and the values by node; shapes alone where an input has no value."""
    from torch.fx.experimental.proxy_tensor import make_fx

    given = [value._value for value in (*inputs, *targets)]
    if any(value.is_meta for value in given):
        given = [value.to("meta") for value in given]
        for module in stage.modules.values():
            module.to("meta")
        if isinstance(stage.loss, torch.nn.Module):
            stage.loss.to("meta")

    def compute(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
        outputs = stage.compute(tuple(values[: len(inputs)]))
        if stage.loss is not None and targets:
            outputs = flatten_outputs(stage.loss(*outputs, *values[len(inputs) :]))
        return outputs

    with torch.no_grad():
        module = make_fx(compute)(*given)
    module.name = name  # type: ignore[assignment]
    keeper = _Keeper(module)
    with torch.no_grad():
        outputs = keeper.run(*given)
    return module.graph, tuple(Tensor(output) for output in outputs), keeper.kept


class _Keeper(fx.Interpreter):
    """Runs a graph and keeps the value of each op."""

    def __init__(self, module: fx.GraphModule) -> None:
        super().__init__(module)
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        value = super().run_node(n)
        if n.op == "call_function" and isinstance(value, torch.Tensor):
            self.kept[n.name] = Tensor(value)
        return value
