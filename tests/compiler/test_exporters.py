"""Modules on loom, taken by PyTorch's exporters: jit tracing, both of torch.onnx's, TensorBoard's graph."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn

PROGRAMS = Path(__file__).parent / "programs" / "exporters"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


class Cell(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.Sequential(nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4), nn.GELU())
        self.outer = nn.Linear(4, 2)

    def forward(self, x: torch.Tensor, scale: torch.Tensor) -> torch.Tensor:
        return self.outer((self.inner(x) * scale).mean((2, 3)))


def made() -> tuple[Cell, tuple[torch.Tensor, ...]]:
    """A module on the device, and its inputs."""
    torch.manual_seed(0)
    x, scale = torch.randn(2, 3, 8, 8), torch.ones(4, 1, 1)
    return Cell().eval().to("loom"), (x.to("loom"), scale.to("loom"))


@pytest.fixture
def cell() -> tuple[Cell, tuple[torch.Tensor, ...]]:
    return made()


def test_a_jit_trace_is_saved_and_runs(cell: tuple[Cell, tuple[torch.Tensor, ...]], tmp_path: Path) -> None:
    module, inputs = cell
    torch.jit.trace(module, inputs).save(str(tmp_path / "cell.pt"))
    loaded = torch.jit.load(str(tmp_path / "cell.pt"))
    assert next(loaded.parameters()).device.type == "loom"
    assert torch.equal(loaded(*inputs), module(*inputs))


def check_onnx_export(dynamo: bool, module: Cell, inputs: tuple[torch.Tensor, ...], path: Path) -> None:
    from torch_loom.compiler import load_onnx

    torch.onnx.export(module, inputs, str(path), dynamo=dynamo, verbose=False)
    graph = load_onnx(path)
    host = [value.cpu() for value in inputs]
    torch.testing.assert_close(graph(*host), module(*inputs).cpu(), rtol=1e-5, atol=1e-5)


def test_an_onnx_export_by_tracing(cell: tuple[Cell, tuple[torch.Tensor, ...]], tmp_path: Path) -> None:
    pytest.importorskip("onnx", reason="the package onnx is not installed: pip install onnx")
    check_onnx_export(False, *cell, tmp_path / "cell.onnx")


@pytest.mark.slow
def test_an_onnx_export_by_dynamo(fork_loom: PythonRunner, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the exporter needs it: pip install onnxscript")
    # In a process of its own: records of its log, which pytest keeps, hold tensors of the device.
    fork_loom(PROGRAMS / "an_onnx_export_by_dynamo.py", given=str(tmp_path / "cell.onnx"))


def test_the_graph_of_tensorboard(cell: tuple[Cell, tuple[torch.Tensor, ...]], tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed: .ci/tensorflow installs it")
    from torch.utils.tensorboard import SummaryWriter

    module, inputs = cell
    with SummaryWriter(str(tmp_path)) as writer:
        writer.add_graph(module, inputs)
    [events] = tmp_path.iterdir()
    assert b"Conv2d" in events.read_bytes()
