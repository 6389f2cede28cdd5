"""The memory benchmark: its last line, and what it says of a bad file."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from benchmarks import memory_error

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
# An NVIDIA H200's (torch 2.11, transformers 5.17): three steps in a fresh process.
MEASURED = {
    "model": "distilbert",
    "dtype": "bfloat16",
    "mode": "infer",
    "shape": [16, 128],
    "steps": [[207504384, 234881024, 172377088]] + 2 * [[206980096, 236978176, 172377088]],
}


def written(folder: Path, content: object) -> str:
    path = folder / "peaks.json"
    path.write_text(json.dumps(content), encoding="utf-8")
    return str(path)


@pytest.mark.slow
def test_a_step_of_a_card(tmp_path: Path) -> None:
    pytest.importorskip("transformers", reason="the extra 'examples' is not installed")
    # A process reads the sizes of workspaces once: one of its own has those of the recording.
    command = [sys.executable, "-m", "benchmarks.memory_error", written(tmp_path, [MEASURED])]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=180)
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[-2].startswith("mean peak-reserved error 0.")
    assert lines[-1] == (
        "mean peak-memory error 0.00% over 1 cases, worst 0.00% (distilbert bfloat16 infer [16, 128])"
    )


def test_the_last_line_has_the_mean_and_the_worst() -> None:
    line = memory_error.summary("peak-memory", [0.01, -0.03], ["a", "b"])
    assert line == "mean peak-memory error 2.00% over 2 cases, worst 3.00% (b)"


@pytest.mark.parametrize(
    ("content", "complaint"),
    [
        ([], "must be a list of model steps"),
        ([3], "row 0: must be an object"),
        ([{**MEASURED, "model": "gpt9"}], "model must be one of bert-base"),
        ([{**MEASURED, "mode": "dream"}], "mode must be of"),
        ([{**MEASURED, "shape": [0, 1]}], "two whole numbers above 0"),
        ([{**MEASURED, "steps": []}], "steps must be a list of 1 to"),
        ([{**MEASURED, "steps": [[1, 2]]}], "three numbers of bytes above 0"),
    ],
)
def test_a_bad_file_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], content: object, complaint: str
) -> None:
    assert memory_error.main([written(tmp_path, content)]) == 2
    assert complaint in capsys.readouterr().err
