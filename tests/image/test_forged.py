"""Images with a right checksum over a wrong body: refused by an ImageError, when they are read or run."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import torch
from safetensors import safe_open
from safetensors.torch import save_file
from torch import nn

import torch_loom
from tests.image.forged import ABSENT, forged
from torch_loom.errors import ImageError
from torch_loom.image import file
from torch_loom.image.program import op_of

if TYPE_CHECKING:
    from pathlib import Path

X = torch.linspace(-1, 1, 24).reshape(3, 8)
I = torch.tensor([0, 1, 4])  # noqa: E741


class Net(nn.Module):
    """Its program has parameters, an update, one of several results, sizes, a dtype and a constant."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inner = nn.Linear(8, 8)
        self.table = nn.Embedding(5, 8)
        self.register_buffer("runs", torch.zeros(()))

    def forward(self, x: torch.Tensor, rows: torch.Tensor, factor: int = 2) -> dict[str, Any]:
        self.runs += 1
        best, _ = self.inner(x).max(1, keepdim=True)
        full = torch.full((1, 4), 2.0, device=x.device)
        return {
            "best": best * factor + self.table(rows),
            "cat": torch.cat([x.reshape(6, 4), full]),
            "x": x.double(),
        }


@pytest.fixture
def image(tmp_path: Path) -> Path:
    path = tmp_path / "net.loom"
    torch_loom.compile(Net().eval(), (X, I)).save(path)
    return path


def call_of(image: Path, op: str) -> int:
    calls = file.read(image)[0]["program"]["calls"]
    return next(i for i, call in enumerate(calls) if call["op"].startswith(op))


def used(image: Path) -> None:
    run = torch_loom.Executable.load(image)
    run(X, I)
    run.netlist()
    run.report(image.with_suffix(".html"))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("calls", "aten::full", "args", 0), [-1]),
        (("calls", "aten::full", "args", 0), [2**62, 4]),
        (("calls", "aten::full", "args", 0), [2**70]),
        (("calls", "aten::full", "args", 0), "x"),
        (("calls", "aten::full", "args", 1), {"float": "x"}),
        (("calls", "aten::full", "args"), 3),
        (("calls", "aten::full", "kwargs"), {"dtype": {"dtype": "foo"}}),
        (("calls", "aten::full", "kwargs"), {"dtype": {"dtype": []}}),
        (("calls", "aten::full", "kwargs"), {"unknown": 1}),
        (("calls", "aten::full", "kwargs"), {"layout": {"layout": "x"}}),
        (("calls", "aten::full", "op"), "aten::from_file"),
        (("calls", "aten::full", "op"), "aten::nobody"),
        (("calls", "aten::full", "op"), "os::system"),
        (("calls", "aten::full", "op"), 3),
        (("calls", "getitem", "args", 1), 7),
        (("calls", "getitem", "args", 1), "x"),
        (("calls", "getitem", "args", 0), 3),
        (("calls", "aten::max", "args", 1), 2**62),
        (("calls", "aten::cat", "args", 0, 0), {"ref": "nobody"}),
        (("calls", "aten::cat", "args", 0, 0), {"ref": [1]}),
        (("calls", "aten::cat", "args", 0, 0, "ref"), ABSENT),
        (("calls", "aten::cat", "args", 0), {"map": 3}),
        (("calls", "aten::cat", "name"), "x"),
        (("calls", "aten::cat", "name"), []),
        (("inputs", 0, "shape"), "x"),
        (("inputs", 0, "shape", 0), -3),
        (("inputs", 0, "dtype"), "float33"),
        (("inputs", 0, "name"), "rows"),
        (("outputs", 0), {"ref": "nobody"}),
        (("outputs",), []),
        (("updates",), {"nobody": {"ref": "x"}}),
        (("updates", "b_runs"), None),
        (("tensors", 0), "nobody"),
        (("tensors",), None),
    ],
    ids=str,
)
def test_programs(image: Path, place: tuple[Any, ...], value: Any) -> None:
    if place[0] == "calls":
        place = ("calls", call_of(image, place[1]), *place[2:])
    with pytest.raises(ImageError):
        used(forged(image, ("program", *place), value))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("place", "value"),
    [
        ((), []),
        (("saved",), 3),
        (("saved",), ["a"] * 9),
        (("names",), 3),
        (("constants",), [{"float": "x"}]),
        (("given",), [1, 2, 3]),
    ],
    ids=str,
)
@pytest.mark.long
def test_specs(image: Path, place: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(ImageError):
        used(forged(image, ("specs", *place), value))


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    ("place", "value"),
    [
        (("grid",), [2**31, 2**31]),
        (("grid",), [1]),
        (("num_chips",), 2**40),
        (("chip",), []),
        (("totals", "latency_seconds"), "soon"),
        (("totals",), ABSENT),
        (("host",), {"relu": {}}),
        (("epochs", 0, "index"), "<script>alert(1)</script>"),
        (("epochs", 0, "ops", 0, "grid_loc"), [1]),
        (("epochs", 0, "ops", 0, "cycles"), "x"),
        (("queues", 0, "kind"), ABSENT),
        (("edges",), [[1]]),
    ],
    ids=str,
)
def test_plans(image: Path, place: tuple[Any, ...], value: Any) -> None:
    with pytest.raises(ImageError):
        used(forged(image, ("plan", *place), value))


@pytest.mark.sampled(5)
@pytest.mark.parametrize("strides", [[2**40, 1], [-1, 1], [1], "x", [1.5, 2], None])
def test_strides_take_no_more_memory_than_the_file_has_values(image: Path, strides: Any) -> None:
    with safe_open(str(image), framework="pt") as opened:
        metadata, flat = opened.metadata(), {name: opened.get_tensor(name) for name in opened.keys()}  # noqa: SIM118
    matrix = next(name for name, one in flat.items() if one.dim() == 2)
    metadata["strides"] = json.dumps({**json.loads(metadata["strides"]), matrix: strides})
    metadata["checksum"] = file._checksum(metadata["body"], metadata["strides"], flat)
    save_file(flat, str(image), metadata=metadata)
    with pytest.raises(ImageError, match="damaged"):
        torch_loom.Executable.load(image)


@pytest.mark.sampled(5)
@pytest.mark.parametrize(
    "name",
    [
        "aten::save",
        "aten::set_grad_enabled",
        "aten::manual_seed",
        "aten::_reshape_alias",
        "aten::_sparse_coo_tensor_unsafe",
        "aten::_nested_view_from_buffer",
        "aten::add_.Tensor",
        "aten::relu.name",
        "aten::__class__",
        "prim::Print",
    ],
)
def test_ops_that_do_more_than_compute_are_refused(name: str) -> None:
    with pytest.raises(ImageError, match=r"no image may call|changes its operands|lacks"):
        op_of(name)


@pytest.mark.long
def test_what_depends_on_the_values_of_inputs_stays_its_error(image: Path) -> None:
    with pytest.raises(IndexError):
        torch_loom.Executable.load(image)(X, I + 2**40)
