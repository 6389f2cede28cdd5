"""What a demo's devices computed, and what PyTorch computes from the same inputs on the host."""

from __future__ import annotations

import runpy
from typing import Any

import torch

from torch_loom.pipeline import Stage
from torch_loom.pybuda.device import program
from torch_loom.pybuda.transformers.pipeline import NLPPipelineWrapper, _moved
from torch_loom.pybuda.verify import correlation

FEW = 16
_seen: list[tuple[Any, tuple[Any, ...], Any, tuple[torch.Tensor, ...]]] = []
"""By run: the stage or the model, its inputs, their names, and its outputs; values are on the host."""


def run(demo: str) -> list[float]:
    """Run a program of PyBuda's; return how each output of its devices correlates with the host's value."""
    _install()
    runpy.run_path(demo, run_name="__main__")
    return _correlations()


def _install() -> None:
    run, forward = Stage.run_forward, NLPPipelineWrapper._forward

    def run_forward(self: Stage, received: Any, names: Any, training: bool, targets: Any) -> Any:
        given = tuple(value.to("cpu", copy=True) for value in self._receiver.open(received))
        made = run(self, received, names, training, targets)
        _seen.append((self, given, names, _on_host(made)))
        return made

    def forward_of_pipeline(self: Any, *args: Any, **kwargs: Any) -> Any:
        named = {**dict(zip(self._parameters, args, strict=False)), **kwargs}
        # A cache changes as it is used: only forwards without one of an earlier forward are compared.
        cache = named.pop("past_key_values", None)
        is_first = not getattr(cache, "get_seq_length", int)()
        named = _moved(named, torch.device("cpu")) if is_first else {}
        made = forward(self, *args, **kwargs)
        if is_first:
            _seen.append((self.model, (), named, _on_host(_tensors(made))))
        return made

    Stage.run_forward = run_forward
    NLPPipelineWrapper._forward = forward_of_pipeline


def _correlations() -> list[float]:
    found = []
    for source, given, names, outputs in _seen:
        with torch.no_grad():
            if isinstance(source, Stage):
                [device] = [one for one in program.devices if one.stage is source]
                expected = device.reference_stage().compute(given, names)
            else:
                expected = _tensors(type(source).forward(source, **names))
        for a, b in zip(expected, outputs, strict=True):
            if a.is_floating_point():
                found.append(correlation_of_finite(a, b))
    return found


def correlation_of_finite(expected: torch.Tensor, made: torch.Tensor) -> float:
    """Return the correlation of values of which most are finite; of few, which always correlate, the cosine.

    Raises:
        AssertionError: they are not, so that there is nothing to compare.
    """
    assert expected.isfinite().float().mean() > 0.5, "PyTorch's own values are not finite"
    if expected.numel() >= FEW:
        return correlation(expected, made)
    return float(torch.cosine_similarity(expected.flatten().double(), made.flatten().double(), dim=0))


def _tensors(made: Any) -> tuple[torch.Tensor, ...]:
    values = made.values() if hasattr(made, "values") else made
    return tuple(value for value in values if isinstance(value, torch.Tensor))


def _on_host(values: tuple[torch.Tensor, ...]) -> tuple[torch.Tensor, ...]:
    return tuple(value.detach().to("cpu", copy=True) for value in values)
