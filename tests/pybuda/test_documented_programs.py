"""The programs of docs/pybuda.md run as they stand."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

PAGE = Path(__file__).parents[2] / "docs" / "pybuda.md"
PROGRAMS = dict(
    re.findall(r"^## ([^\n]+)\n(?:(?!^## ).)*?```python\n(.*?)```", PAGE.read_text("utf-8"), re.M | re.S)
)


def test_there_are_programs() -> None:
    assert len(PROGRAMS) == 8


@pytest.mark.parametrize("title", PROGRAMS)
def test_a_documented_program_runs(title: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(PROGRAMS[title], f"docs/pybuda.md: {title}", "exec"), {"__name__": "__main__"})
