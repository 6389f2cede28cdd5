"""What tests of the compiler share."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import fx, nn

from torch_loom import compiler

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture(scope="module")
def exported_once() -> Iterator[None]:
    """Most tests compile one module again and again: its graph is traced once."""
    from torch_loom.compiler import api

    traced: dict[Any, Any] = {}
    original = api.exported

    def exported(module: nn.Module, args: Any, kwargs: Any, device: torch.device) -> Any:
        key = (id(module), *(tuple(one.shape) for one in args))
        if key not in traced:
            traced[key] = (original(module, args, kwargs, device), module)
        found, _ = traced[key]
        return replace(found, graph=fx.GraphModule(found.graph, copied(found.graph.graph)))

    def copied(graph: fx.Graph) -> fx.Graph:
        new = fx.Graph()
        result = new.graph_copy(graph, {}, return_output_node=True)
        assert isinstance(result, tuple)
        new.output(result[0])
        return new

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(api, "exported", exported)
        yield


@pytest.fixture
def plain_configuration(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Options at their defaults before and after; nothing is taken from a cache."""
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", "off")
    compiler.reset_configuration()
    yield
    compiler.reset_configuration()
