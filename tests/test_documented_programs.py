"""The programs of the pages named here run as they stand, in the order of the page."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from torch_loom import pybuda

DOCS = Path(__file__).parents[1] / "docs"
PAGES = ("compiler", "numerics", "pybuda")
PROGRAMS = {
    f"{page}.md, {number}": program
    for page in PAGES
    for number, program in enumerate(
        re.findall(r"```python\n(.*?)```", (DOCS / f"{page}.md").read_text("utf-8"), re.S), start=1
    )
}


def test_each_page_has_programs() -> None:
    assert [sum(name.startswith(page) for name in PROGRAMS) for page in PAGES] == [3, 1, 9]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    pybuda.pybuda_reset()
    yield
    pybuda.pybuda_reset()


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_documented_program_runs(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if ".onnx" in PROGRAMS[name]:
        pytest.importorskip("onnx")
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[name], f"docs/{name}", "exec"), {"__name__": "__main__"})
