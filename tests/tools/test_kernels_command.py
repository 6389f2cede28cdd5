"""`loom kernels`: the kernels that a program launched, as a table and as a page."""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from torch_loom.kernels.cuda_cpp.record import definition
from torch_loom.tools.kernels import merged
from torch_loom.tools.kernels_page import checks_text, page

KERNELS = Path(__file__).parents[1] / "kernels"
PROGRAM = KERNELS / "programs" / "launched_kernels.py"
CUDA_PROGRAM = KERNELS / "cuda_cpp" / "programs" / "listed.py"


def kernel(**given: Any) -> dict[str, Any]:
    shape = {
        "chip": "h100",
        "grid": [4, 1, 1],
        "launches": 2,
        "seconds": 3e-6,
        "bytes": 1e6,
        "products": 2.5e9,
        "operations": 10.0,
        "occupancy": 0.5,
        "waves": 1,
    }
    return {
        "name": "scale",
        "file": "kernels.py",
        "line": 10,
        "source": "def scale(x):\n    tl.store(x, 1 < 2)\n",
        "constants": {"BLOCK": "1024"},
        "generated": "void run_program(const Program& program) {\nfor (;;) {\nx();\n}\n}",
        "options": {"num_warps": 4, "num_stages": 3},
        "checks": {"ends": 2, "each": 1},
        "is_watched": False,
        "launches": 2,
        "seconds": 6e-6,
        "bytes": 2e6,
        "shapes": [shape],
        **given,
    }


def test_kernels_of_several_processes_are_added_up() -> None:
    other = kernel(name="other", generated="other", seconds=1e-3)
    found = merged([[kernel()], [kernel(), other]])
    assert [(one["name"], one["launches"], one["seconds"]) for one in found] == [
        ("other", 2, 1e-3),
        ("scale", 4, 1.2e-5),
    ]


def test_checks_in_words() -> None:
    assert checks_text(kernel()) == "2 by block, 1 one by one"
    assert checks_text(kernel(is_watched=True)) == "each, watched"
    assert checks_text(kernel(checks={})) == "none"


def test_the_page_has_source_and_generated_code() -> None:
    text = page(["train.py"], [kernel()])
    assert "<span class=no>11 </span>    tl.store(x, 1 &lt; 2)" in text
    assert "<span class=no>3 </span>    x();" in text
    assert "2.5 G" in text
    assert "BLOCK=1024; num_warps=4" in text


def test_the_page_of_a_program_without_kernels() -> None:
    assert "<b>0</b><span>kernels</span>" in page(["train.py"], [])


@pytest.mark.long
@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["ls"], "is neither"),
        (["absent.py"], "there is no file 'absent.py'"),
        (["--html", "/no/folder/page.html", PROGRAM], "cannot be written: there is no folder /no/folder"),
        (["--html", "/tmp", PROGRAM], "/tmp cannot be written: this is a folder"),
    ],
)
def test_what_cannot_be_done_is_refused(arguments: list[str | Path], words: str) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom.tools.cli", "kernels", *arguments],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode != 0
    assert words in done.stderr


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_a_program(tmp_path: Path) -> None:
    html = tmp_path / "page.html"
    done = subprocess.run(
        [sys.executable, "-m", "torch_loom.tools.cli", "kernels", "--chip", "a100", "--html", html, PROGRAM],
        capture_output=True,
        text=True,
        check=False,
        env=None,
    )
    assert done.returncode == 3, done.stderr  # the program's
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert rows["scale"][2] == "5"
    assert rows["one"][2] == "1"
    assert "of the chip a100" in done.stdout
    assert "tl.store(out + at, tl.load(x + at, mask=mask) * factor, mask=mask)" in html.read_text(
        encoding="utf-8"
    )


def test_a_definition_is_found_behind_declarations() -> None:
    text = (
        "__global__ void f(int x);\n"
        "__global__ void other() { f(1); }\n"
        "template <int N>\n__global__ void __launch_bounds__(N) f(int x) {\n  if (x) { x = 0; }\n}\nint y;\n"
    )
    line, found = definition(text, "f")
    assert line == 3
    assert found.startswith("template <int N>")
    assert found.endswith("x = 0; }\n}")
    assert definition(text, "g") == (0, "")


@pytest.mark.slow
@pytest.mark.parametrize("flags", [[], ["--sanitize"]], ids=["default", "sanitized"])
def test_kernels_of_cuda_sources(tmp_path: Path, flags: list[str]) -> None:
    html, given = tmp_path / "page.html", repr((str(tmp_path),))
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "torch_loom.tools.cli",
            "kernels",
            *flags,
            "--html",
            html,
            CUDA_PROGRAM,
            given,
        ],
        capture_output=True,
        text=True,
        check=False,
        env={**os.environ, "COLUMNS": "160"},
    )
    assert done.returncode == 0, done.stderr
    rows = {line.split()[0]: line.split() for line in done.stdout.splitlines() if line.strip()}
    assert rows["scale<float>"][1:3] == ["scale.cu:4", "3"]
    assert rows["add"][1] == "1"
    assert {rows[name][-1] for name in ("scale<float>", "add")} == {"each" if flags else "none"}
    text = html.read_text(encoding="utf-8")
    assert "if (at &lt; count) x[at] *= by;" in text
    assert "x[threadIdx.x] += 1;" in text
    assert "8 x 1 x 1 of 128 x 1 x 1" in text
