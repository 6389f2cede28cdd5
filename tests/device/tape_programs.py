"""40 small programs, and what the tape tells of them: the same wherever and however they run."""

from __future__ import annotations

import contextlib
import json
import sys
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from torch_loom import _C

Operands = dict[str, Tensor]
Program = Callable[[Operands], object]


def operands(device: str = "loom") -> Operands:
    generator = torch.Generator().manual_seed(0)

    def random(*shape: int) -> Tensor:
        return torch.randn(*shape, generator=generator).to(device)

    made = {
        "x": random(8, 6),
        "y": random(8, 6),
        "square": random(6, 6),
        "row": random(6),
        "wide": random(4, 3, 5),
        "image": random(2, 4, 9, 9),
        "filters": random(6, 2, 3, 3),
        "bias": random(6),
        "half": random(8, 6).to(torch.bfloat16),
        "index": torch.tensor([5, 1, 1, 0]).to(device),
        "mask": torch.tensor([True, False] * 3).to(device),
        "target": torch.tensor([0, 5, 2, 1, 3, 3, 2, 0]).to(device),
        "query": random(2, 2, 8, 4),
        "key": random(2, 2, 8, 4),
        "value": random(2, 2, 8, 4),
        "out": torch.empty(8, 6).to(device),
    }
    for tensor in made.values():
        tensor.data_ptr()  # under the lazy policy: it has its memory before anybody listens
    return made


PROGRAMS: dict[str, Program] = {
    "add": lambda t: t["x"] + t["y"],
    "add_self": lambda t: t["x"] + t["x"],
    "add_scaled": lambda t: torch.add(t["x"], t["y"], alpha=3),
    "add_number": lambda t: t["x"] + 2.5,
    "add_row": lambda t: t["x"] + t["row"],
    "add_in_place": lambda t: t["x"].add_(t["y"]),
    "mul_out": lambda t: torch.mul(t["x"], t["y"], out=t["out"]),
    "half": lambda t: t["half"] * t["half"],
    "promoted": lambda t: t["half"] + t["x"],
    "exp": lambda t: t["x"].exp(),
    "transposed": lambda t: t["x"].t().exp(),
    "interleaved": lambda t: t["x"][:, ::2].relu(),
    "mm_self": lambda t: torch.mm(t["square"], t["square"]),
    "addmm": lambda t: torch.addmm(t["row"], t["x"], t["square"], beta=0.5, alpha=2),
    "baddbmm": lambda t: torch.baddbmm(t["wide"], t["wide"][:, :, :3], t["wide"], beta=2, alpha=0.5),
    "linear": lambda t: functional.linear(t["x"], t["square"], t["bias"]),
    "conv": lambda t: functional.conv2d(
        t["image"], t["filters"], t["bias"], stride=2, padding=1, dilation=2, groups=2
    ),
    "max_pool": lambda t: functional.max_pool2d(t["image"], 3, stride=2, ceil_mode=True),
    "batch_norm": lambda t: functional.batch_norm(t["x"], None, None, training=True, momentum=0.3, eps=1e-3),
    "layer_norm": lambda t: functional.layer_norm(t["x"], (6,), t["row"], eps=1e-4),
    "softmax": lambda t: t["x"].softmax(1),
    "log_softmax_half": lambda t: t["half"].log_softmax(0),
    "sum": lambda t: t["wide"].sum((0, 2), keepdim=True),
    "mean_as_double": lambda t: t["x"].mean(0, dtype=torch.float64),
    "argmax": lambda t: t["x"].argmax(1),
    "max_with_indices": lambda t: t["x"].max(1),
    "cumsum": lambda t: t["x"].cumsum(-1),
    "sort": lambda t: t["x"].sort(dim=0, descending=True),
    "topk": lambda t: t["x"].topk(3, dim=1, largest=False),
    "cat": lambda t: torch.cat([t["x"], t["y"], t["x"]], 1),
    "stack": lambda t: torch.stack([t["x"], t["y"]]),
    "where": lambda t: torch.where(t["mask"], t["x"], t["y"]),
    "gather": lambda t: t["x"].index_select(0, t["index"]),
    "index": lambda t: t["x"][t["index"]],
    "scatter": lambda t: t["x"].index_add(0, t["index"], t["y"][:4]),
    "embedding": lambda t: functional.embedding(t["index"], t["x"]),
    "loss": lambda t: functional.cross_entropy(t["x"], t["target"], label_smoothing=0.0),
    "attention": lambda t: functional.scaled_dot_product_attention(
        t["query"], t["key"], t["value"], is_causal=True
    ),
    "foreach": lambda t: torch._foreach_add_([t["x"], t["y"]], [t["y"], t["x"]], alpha=2),
    "clone_strided": lambda t: t["x"].t().contiguous(),
}
assert len(PROGRAMS) == 40

Record = dict[str, Any]


def shape_of(operand: tuple[Any, ...]) -> list[Any]:
    """Sizes, strides, bytes of an element, whether it is written, dtype."""
    return [list(operand[1]), list(operand[2]), *operand[3:]]


class Tape:
    """The kernels of which a reader is told at their ends."""

    def __init__(self) -> None:
        self.records: list[Record] = []
        self.begun: list[str] = []
        self.copies = 0

    def begin(self, kind: int, device: int, stream: int, name: str, *rest: object) -> None:
        if kind == _C.TapeReader.KERNEL:
            self.begun.append(name)
        self.copies += kind == _C.TapeReader.COPY

    def end(
        self,
        device: int,
        stream: int,
        name: str,
        shape_class: str | None,
        inputs: tuple[tuple[Any, ...], ...],
        outputs: tuple[tuple[Any, ...], ...],
        attributes: dict[str, Any],
        is_captured: bool,
        has_failed: bool,
    ) -> None:
        self.records.append(
            {
                "name": name,
                "class": shape_class,
                "stream": stream,
                "inputs": [shape_of(operand) for operand in inputs],
                "outputs": [shape_of(operand) for operand in outputs],
                "attributes": attributes,
                "addresses": [operand[0] for operand in (*inputs, *outputs)],
                "is_captured": is_captured,
                "has_failed": has_failed,
            }
        )


@contextlib.contextmanager
def listening() -> Iterator[Tape]:
    tape = Tape()
    reader = _C.TapeReader(tape.begin, tape.end)
    reader.attach()
    try:
        yield tape
    finally:
        reader.detach()


def what_is_told(tape: Tape) -> list[Record]:
    """The records without what depends on the place: addresses and streams."""
    left_out = ("addresses", "stream", "is_captured")
    return [{key: value for key, value in record.items() if key not in left_out} for record in tape.records]


def tell(program: Program, given: Operands, stream: torch.Stream | None = None) -> list[Record]:
    """What the tape tells of a program on a stream, when it has run there before."""
    with torch.no_grad(), stream or contextlib.nullcontext():
        program(given)
        with listening() as tape:
            program(given)
        torch.loom.synchronize()
    assert tape.begun == [record["name"] for record in tape.records]
    return what_is_told(tape)


def main() -> None:
    """Print what is told of each program, on the default stream and on another, as JSON."""
    told = {}
    for name, program in PROGRAMS.items():
        # An op that works in place changes what the next would see.
        told[name] = [tell(program, operands()), tell(program, operands(), torch.loom.Stream())]
    json.dump(told, sys.stdout)


if __name__ == "__main__":
    main()
