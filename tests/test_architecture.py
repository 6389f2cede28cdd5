"""ARCHITECTURE.md: what its pictures name is there, it is read in one sitting, and its links lead on."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from torch_loom.compiler.passes import PLAN_PASSES

ROOT = Path(__file__).parents[1]
TEXT = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
PAGES = [ROOT / "ARCHITECTURE.md", *sorted((ROOT / "docs/internals").glob("*.md"))]
STEP = re.compile(r"([A-Za-z_][\w:]*) +((?:torch|runtime|driver|compiler|image)/[\w/]+\.(?:cpp|h|py))")
STEPS = [step for picture in re.findall(r"```\n(.*?)```", TEXT, re.DOTALL) for step in STEP.findall(picture)]


@pytest.mark.parametrize(("name", "path"), STEPS, ids=[name for name, _ in STEPS])
def test_steps_of_pictures(name: str, path: str) -> None:
    root = ROOT / ("torch_loom" if path.endswith(".py") else "csrc")
    source = (root / path).read_text(encoding="utf-8")
    assert re.search(rf"\b{re.escape(name)}\(|class {re.escape(name)}\b|\b{re.escape(name)}::", source)


def test_both_pictures_are_looked_at() -> None:
    names = {name for name, _ in STEPS}
    assert {"run_boxed", "Launch::submit", "compile_module", "Replayer"} <= names


def test_passes_of_the_picture() -> None:
    listed = re.search(r"\(graph, context\) -> graph:\n(.*?)▼", TEXT, re.DOTALL)
    assert listed
    words = " ".join(line.strip(" │") for line in listed[1].splitlines())
    assert [word.strip() for word in words.split(",")] == [each.name for each in PLAN_PASSES]


def test_it_is_read_in_one_sitting() -> None:
    assert len(TEXT.split()) <= 2500


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links(page: Path) -> None:
    for target in re.findall(r"\]\(([^)#]+)(?:#[\w-]+)?\)", page.read_text(encoding="utf-8")):
        assert target.startswith("http") or (page.parent / target).exists(), target
