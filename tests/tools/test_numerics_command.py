"""`loom numerics`: the table, the page, and what it refuses."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from torch_loom.tools.cli import app

SCRIPT = Path(__file__).parent / "programs" / "compile_command" / "net.py"


@pytest.fixture
def script(tmp_path: Path) -> Path:
    (tmp_path / "parts.py").write_text("WIDTH = 32\n")
    path = tmp_path / "net.py"
    path.write_text(SCRIPT.read_text(encoding="utf-8"))
    return path


def loom(*arguments: object) -> Result:
    return CliRunner().invoke(app, [str(each) for each in arguments])


def test_layers_and_outputs_in_each_format(script: Path, tmp_path: Path) -> None:
    page = tmp_path / "page.html"
    shown = loom("numerics", script, "--format", "nvfp4", "--format", "Bfp8_b", "--report", page)
    assert shown.exit_code == 0, shown.output
    lines = [line.split() for line in shown.stdout.splitlines()]
    outputs = {line[1]: float(line[3]) for line in lines if line and line[0] not in ("layer", "report:")}
    assert outputs["NVFP4"] > outputs["Bfp8_b"] > 0
    assert "NVFP4" in page.read_text(encoding="utf-8")


def test_unknown_format_is_named(script: Path) -> None:
    shown = loom("numerics", script, "--format", "nvfp5")
    assert shown.exit_code == 2
    assert "no formats nvfp5; allowed: Float32" in shown.stderr


def test_script_without_a_model_is_an_error(tmp_path: Path) -> None:
    path = tmp_path / "empty.py"
    path.write_text("")
    shown = loom("numerics", path, "--format", "MXFP8")
    assert shown.exit_code == 1
    assert "empty.py" in shown.stderr
