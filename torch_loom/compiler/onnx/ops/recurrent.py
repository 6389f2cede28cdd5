"""Recurrent layers, step by step."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TypedDict

import torch
from torch import Tensor
from torch.nn import functional
from typing_extensions import Unpack

from torch_loom.compiler.onnx.table import Float, Floats, Int, op
from torch_loom.errors import OnnxError

_ACTIVATIONS: dict[str, Callable[..., Tensor]] = {
    "relu": torch.relu,
    "tanh": torch.tanh,
    "sigmoid": torch.sigmoid,
    "affine": lambda x, a, b: a * x + b,
    "leakyrelu": functional.leaky_relu,
    "thresholdedrelu": lambda x, a: functional.threshold(x, a, 0.0),
    "scaledtanh": lambda x, a, b: a * torch.tanh(b * x),
    "hardsigmoid": lambda x, a, b: torch.clamp(a * x + b, 0, 1),
    "elu": functional.elu,
    "softsign": functional.softsign,
    "softplus": functional.softplus,
}
_DEFAULTS: dict[str, tuple[float | None, ...]] = {
    "affine": (1.0, 0.0),
    "leakyrelu": (0.01,),
    "thresholdedrelu": (1.0,),
    "scaledtanh": (None, None),
    "hardsigmoid": (0.2, 0.5),
    "elu": (1.0,),
}
"""Alpha, and beta, of those that take them; None: ONNX has no default."""
Step = Callable[[Tensor, list[Tensor]], list[Tensor]]


class Layer(TypedDict, total=False):
    """Attributes of all recurrent layers."""

    activations: Sequence[str]
    activation_alpha: Floats
    activation_beta: Floats
    clip: Float
    direction: str
    hidden_size: Int
    layout: Int


def _activations(layer: Layer, default: Sequence[str], way: int) -> list[Callable[[Tensor], Tensor]]:
    """Return the functions of a direction.

    ONNX deals alphas and betas out in the order of the functions of all directions, one to each that
    takes one.
    """
    count, num_ways, names = len(default), len(_ways(layer)), layer.get("activations")
    chosen = [name.lower() for name in names or [*default] * num_ways]
    if len(chosen) != count * num_ways or not _ACTIVATIONS.keys() >= set(chosen):
        raise OnnxError(
            f"the activations {list(names or [])} are not read: {count} for each direction are wanted, of "
            f"{', '.join(_ACTIVATIONS)}"
        )
    left = [list(layer.get("activation_alpha") or []), list(layer.get("activation_beta") or [])]
    bound: list[Callable[[Tensor], Tensor]] = []
    for name in chosen:
        numbers = [
            given.pop(0) if given else each
            for each, given in zip(_DEFAULTS.get(name, ()), left, strict=False)
        ]
        if None in numbers:
            raise OnnxError(f"the activation {name} needs activation_alpha and activation_beta")
        bound.append(functools.partial(_applied, _ACTIVATIONS[name], numbers))
    # Some writers give each function a number, zeros to those that take none.
    if any(left[0]) or any(left[1]):
        raise OnnxError("activation_alpha or activation_beta has more numbers than the activations take")
    return bound[way * count : (way + 1) * count]


def _applied(function: Callable[..., Tensor], numbers: Sequence[float | None], x: Tensor) -> Tensor:
    return function(x, *numbers)


def _limited(x: Tensor, clip: float | None) -> Tensor:
    return x if clip is None else x.clamp(-clip, clip)


def _ways(layer: Layer) -> list[bool]:
    """Whether each direction runs backwards."""
    ways = {"forward": [False], "reverse": [True], "bidirectional": [False, True]}
    return ways[layer.get("direction", "forward")]


def _over_time(
    x: Tensor, states: list[Tensor], lengths: Tensor | None, backwards: bool, step: Step
) -> tuple[Tensor, list[Tensor]]:
    """Run a step along the first dimension; samples that are over keep their state and give zeros."""
    outputs: list[Tensor] = []
    order = range(x.shape[0])
    for at in reversed(order) if backwards else order:
        made = step(x[at], states)
        out = made[0]
        if lengths is not None:
            runs = (at < lengths).unsqueeze(1)
            out = torch.where(runs, out, torch.zeros_like(out))
            made = [torch.where(runs, new, old) for new, old in zip(made, states, strict=True)]
        outputs.append(out)
        states = made
    if not outputs:
        return states[0].new_empty((0, *states[0].shape)), states
    return torch.stack(outputs[::-1] if backwards else outputs), states


def _run(
    x: Tensor,
    starts: Sequence[Tensor | None],
    lengths: Tensor | None,
    layer: Layer,
    hidden: int,
    step_of: Callable[[int], Step],
) -> tuple[Tensor, list[Tensor]]:
    """Return all outputs, [T, D, B, H], and the last states, [D, B, H]; batches first if layout is 1."""
    if layer.get("layout"):
        x, starts = x.transpose(0, 1), [None if start is None else start.transpose(0, 1) for start in starts]
    outputs, lasts = [], []
    for way, backwards in enumerate(_ways(layer)):
        zero = torch.zeros(x.shape[1], hidden, dtype=x.dtype, device=x.device)
        states = [zero if start is None else start[way] for start in starts]
        made, last = _over_time(x, states, lengths, backwards, step_of(way))
        outputs.append(made)
        lasts.append(last)
    out = torch.stack(outputs, 1)
    ends = [torch.stack([last[number] for last in lasts]) for number in range(len(starts))]
    if layer.get("layout"):
        return out.permute(2, 0, 1, 3), [end.transpose(0, 1) for end in ends]
    return out, ends


@op("RNN")
def rnn(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    **layer: Unpack[Layer],
) -> tuple[Tensor, Tensor]:
    """A layer of plain recurrent cells."""
    hidden, clip = r.shape[-1], layer.get("clip")

    def step_of(way: int) -> Step:
        [f] = _activations(layer, ["Tanh"], way)
        bias = 0 if b is None else b[way, :hidden] + b[way, hidden:]

        def step(value: Tensor, states: list[Tensor]) -> list[Tensor]:
            return [f(_limited(value @ w[way].mT + states[0] @ r[way].mT + bias, clip))]

        return step

    out, [last] = _run(x, [initial_h], lengths, layer, hidden, step_of)
    return out, last


@op("GRU")
def gru(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    *,
    linear_before_reset: Int = 0,
    **layer: Unpack[Layer],
) -> tuple[Tensor, Tensor]:
    """A layer of gated recurrent units; gates in the order update, reset, hidden."""
    hidden, clip = r.shape[-1], layer.get("clip")

    def step_of(way: int) -> Step:
        f, g = _activations(layer, ["Sigmoid", "Tanh"], way)
        both = torch.zeros(6 * hidden, dtype=x.dtype, device=x.device) if b is None else b[way]
        input_bias, state_bias = both[: 3 * hidden], both[3 * hidden :]

        def step(value: Tensor, states: list[Tensor]) -> list[Tensor]:
            [h] = states
            inputs = value @ w[way].mT + input_bias
            gates = inputs[:, : 2 * hidden] + h @ r[way, : 2 * hidden].mT + state_bias[: 2 * hidden]
            z, reset = f(_limited(gates, clip)).chunk(2, -1)
            last, own = r[way, 2 * hidden :].mT, state_bias[2 * hidden :]
            inner = reset * (h @ last + own) if linear_before_reset else (reset * h) @ last + own
            new = g(_limited(inputs[:, 2 * hidden :] + inner, clip))
            return [(1 - z) * new + z * h]

        return step

    out, [last] = _run(x, [initial_h], lengths, layer, hidden, step_of)
    return out, last


@op("LSTM")
def lstm(
    x: Tensor,
    w: Tensor,
    r: Tensor,
    b: Tensor | None = None,
    lengths: Tensor | None = None,
    initial_h: Tensor | None = None,
    initial_c: Tensor | None = None,
    peepholes: Tensor | None = None,
    *,
    input_forget: Int = 0,
    **layer: Unpack[Layer],
) -> tuple[Tensor, Tensor, Tensor]:
    """A layer of long short-term memory; gates in the order input, output, forget, cell."""
    hidden, clip = r.shape[-1], layer.get("clip")

    def step_of(way: int) -> Step:
        f, g, h = _activations(layer, ["Sigmoid", "Tanh", "Tanh"], way)
        bias = 0 if b is None else b[way, : 4 * hidden] + b[way, 4 * hidden :]
        peeks = [None] * 3 if peepholes is None else list(peepholes[way].chunk(3))

        def seen(gate: Tensor, peek: Tensor | None, cell: Tensor) -> Tensor:
            return f(_limited(gate if peek is None else gate + peek * cell, clip))

        def step(value: Tensor, states: list[Tensor]) -> list[Tensor]:
            state, cell = states
            i, o, forget, c = (value @ w[way].mT + state @ r[way].mT + bias).chunk(4, -1)
            taken = seen(i, peeks[0], cell)
            kept = 1 - taken if input_forget else seen(forget, peeks[2], cell)
            new = kept * cell + taken * g(_limited(c, clip))
            return [seen(o, peeks[1], new) * h(new), new]

        return step

    out, [last, cell] = _run(x, [initial_h, initial_c], lengths, layer, hidden, step_of)
    return out, last, cell
