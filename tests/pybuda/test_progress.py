"""The line that shows a run's progress."""

from __future__ import annotations

import io

import pytest
import torch

from tests.pybuda.models import SIZE, Projection
from torch_loom import pybuda
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.run.progress import Progress


def test_the_line() -> None:
    progress = Progress(4, io.StringIO())
    progress.num_done = 2
    assert progress.line(0.5, 1.25) == f"[{'#' * 15}{'.' * 15}] 2/4 micro-batches, 4.0/s, loss 1.25"
    endless = Progress(0, io.StringIO())
    endless.num_done = 7
    assert endless.line(0.0, None) == "7 micro-batches, 0.0/s"


def test_the_last_line_ends_and_an_early_end_too() -> None:
    stream = io.StringIO()
    progress = Progress(2, stream)
    for _ in range(2):
        progress([torch.tensor([1.0, 3.0])])
    progress.close()
    assert stream.getvalue().endswith("2/2 micro-batches, " + stream.getvalue().rpartition("batches, ")[2])
    assert stream.getvalue().endswith("loss 2\n")
    stream = io.StringIO()
    early = Progress(9, stream)
    early.close()
    assert stream.getvalue() == ""
    early([])
    early.close()
    early.close()
    assert stream.getvalue().count("\n") == 1


@pytest.mark.parametrize("shown", [False, True])
def test_runs_show_it_where_asked(shown: bool, capsys: pytest.CaptureFixture[str]) -> None:
    _get_global_compiler_config().show_progress = shown
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    tt0.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    for _ in range(4):
        tt0.push_to_inputs(torch.ones(1, SIZE))
        tt0.push_to_target_inputs(torch.ones(1, SIZE))
    pybuda.run_training(steps=2, microbatch_count=2, _sequential=True)
    written = capsys.readouterr().err
    assert ("4/4 micro-batches, " in written) is shown
    assert ("loss" in written) is shown
