"""The compile cache: what is a hit, what is not, damage, and several processes at once."""

from __future__ import annotations

import os
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn

import torch_loom
from torch_loom import compiler
from torch_loom.compiler import cache
from torch_loom.compiler.fingerprint import fingerprint

if TYPE_CHECKING:
    from pathlib import Path

PROGRAMS = Path(__file__).parent / "programs" / "cache"

X = torch.linspace(-1, 1, 24).reshape(3, 8)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plain_configuration: None) -> Path:
    path = tmp_path / "compiled"
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", str(path))
    return path


class Net(nn.Module):
    """Has what an entry must bring back: folded parameters, a constant, a buffer that runs change."""

    def __init__(self, seed: int = 0) -> None:
        super().__init__()
        torch.manual_seed(seed)
        self.inner = nn.Linear(8, 8)
        self.register_buffer("runs", torch.zeros(()))
        self.hidden: dict[str, Any] = {}

    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        self.runs += 1
        weight = self.inner.weight.softmax(-1) * torch.tensor([1.0, 2, 3, 4, 5, 6, 7, 8], device=x.device)
        self.hidden["last"] = weight
        return {"y": nn.functional.linear(x, weight, self.inner.bias), "runs": self.runs * 2}


def compiled(net: nn.Module, x: torch.Tensor = X, **options: Any) -> tuple[torch_loom.Executable, bool]:
    """The executable, and whether it was found."""
    run = torch_loom.compile(net, (x,), chip=options.pop("chip", "wormhole_b0"), **options)
    return run, run.plan["passes"][0]["name"] == "cache"


@pytest.mark.long
def test_the_second_time_is_read_and_computes_the_same() -> None:
    first, found = compiled(Net())
    assert not found
    for seed in (0, 1):  # other parameters: the same graph
        net = Net(seed)
        run, found = compiled(net)
        assert found
        assert net.hidden == {}
        assert run.netlist() == first.netlist()
        expected = Net(seed).to("loom")
        for _ in range(3):
            got, want = run(X), expected(X.to("loom"))
            assert torch.equal(got["y"], want["y"])
            assert torch.equal(got["runs"], want["runs"])


@pytest.mark.long
def test_another_graph_option_chip_shape_or_state_is_compiled() -> None:
    net = nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.ReLU()).eval()
    assert not compiled(net)[1]
    assert compiled(net)[1]
    assert not compiled(nn.Sequential(nn.Linear(8, 8), nn.Dropout(), nn.GELU()).eval())[1]
    assert not compiled(net, X[:2])[1]
    assert not compiled(net, X.t().contiguous().t())[1]  # other strides
    assert not compiled(net.train())[1]
    assert not compiled(net.eval(), chip="grayskull")[1]
    assert not compiled(net, math_fidelity="LoFi")[1]
    compiler.override_op_size("linear", (1, 1))
    assert not compiled(net)[1]
    assert compiled(net)[1]
    compiler.configure_mixed_precision(name_regex="lin.*", output_df="Bfp8_b")
    assert not compiled(net)[1]
    compiler.reset_configuration()
    compiler.set_epoch_break(compiler.Predicate(lambda op: op.name == "linear", "mine"))
    assert not compiled(net)[1]
    assert not compiled(net)[1]  # nobody knows what it will answer
    compiler.reset_configuration()
    assert compiled(net)[1]
    assert not compiled(net, cache=False)[1]
    net[2].forward = torch.tanh  # a patch is seen, since it runs
    assert not compiled(net)[1]


@pytest.mark.long
def test_damaged_entries_are_compiled_anew(folder: Path, caplog: pytest.LogCaptureFixture) -> None:
    net = nn.Linear(8, 4)
    want = compiled(net)[0](X)
    (entry,) = folder.iterdir()
    whole = entry.read_bytes()
    for damaged in (b"", whole[: len(whole) // 2], b"x" * 1000, whole.replace(b"linear", b"lineer")):
        entry.write_bytes(damaged)
        caplog.clear()
        run, found = compiled(net)
        assert not found
        assert "dropped" in caplog.text
        assert torch.equal(run(X), want)
        assert compiled(net)[1]


def test_a_folder_that_cannot_be_written_is_no_error(folder: Path) -> None:
    folder.write_text("a file")
    net = nn.Linear(8, 4)
    assert not compiled(net)[1]
    assert not compiled(net)[1]


@pytest.mark.long
def test_old_entries_go(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    net = nn.Linear(8, 4)
    compiled(net)
    (entry,) = folder.iterdir()
    for name, seconds in (("killed", 1e6), ("writing", 10)):
        path = folder / f".{entry.name}.{name}"
        path.touch()
        os.utime(path, (time.time() - seconds,) * 2)
    compiled(net, X[:1])
    assert {path.name for path in folder.glob(".*")} == {f".{entry.name}.writing"}
    size = sum(entry.stat().st_size for entry in folder.iterdir())
    monkeypatch.setattr(cache, "MAX_BYTES", size * 5 // 4)  # room for two; entries have times in them
    assert compiled(net)[1]  # used last, so the other one goes
    compiled(net, X[:2])
    assert len(list(folder.glob("*.loomc"))) == 2
    assert compiled(net)[1]
    assert not compiled(net, X[:1])[1]


def test_what_depends_on_values_has_no_fingerprint() -> None:
    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    class Reads(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.table = [torch.ones(8)]

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x + self.table[0]

    assert fingerprint(Branches(), (X,), {}) == ""
    assert fingerprint(Reads(), (X,), {}) == ""
    assert fingerprint(nn.ReLU(), (X,), {}) != ""
    assert compiled(Reads())[0](X).cpu().equal(X + 1)


@pytest.mark.slow
def test_two_processes_share_a_folder(folder: Path) -> None:
    with (
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "compiles.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as one,
        subprocess.Popen(
            [sys.executable, str(PROGRAMS / "compiles.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        ) as other,
    ):
        both = (one, other)
        for process in both:
            assert process.stdout is not None
            assert process.stdout.readline() == "ready\n"
        for process in both:
            process.communicate("go\n", timeout=100)
    assert [process.returncode for process in both] == [0, 0]
    # One entry a shape, and nothing half-written.
    assert [path.suffix for path in folder.iterdir()] == [".loomc"] * 8
