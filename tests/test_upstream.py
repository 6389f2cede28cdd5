"""The faults of PyTorch that docs/upstream.md shows are there: where one is mended, its workaround can go."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

TEXT = (Path(__file__).parents[1] / "docs" / "upstream.md").read_text(encoding="utf-8")
SCRIPTS = re.findall(r"```python\n(.*?)```", TEXT, re.DOTALL)


@pytest.mark.long
@pytest.mark.parametrize("script", SCRIPTS, ids=range(len(SCRIPTS)))
def test_the_fault_is_there(script: str) -> None:
    exec(compile(script, "docs/upstream.md", "exec"), {})


def test_each_fault_has_a_script() -> None:
    assert len(SCRIPTS) >= 4
    assert all("assert" in script for script in SCRIPTS)
