"""What waits for the import of a module is called when that is whole, and once."""

from __future__ import annotations

import importlib
import shutil
import sys
from pathlib import Path
from types import ModuleType

import pytest

from torch_loom import late

PROGRAMS = Path(__file__).parent / "programs" / "late"


@pytest.fixture
def module(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """The name of a module that calls `during.hook()` amid its import."""
    name = f"late_{tmp_path.name.replace('-', '_')}"
    shutil.copyfile(PROGRAMS / "calls_back.py", tmp_path / f"{name}.py")
    monkeypatch.syspath_prepend(tmp_path)
    during = ModuleType("during")
    during.hook = lambda: None  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "during", during)
    yield name
    sys.modules.pop(name, None)


def change(name: str, calls: list[str]) -> None:
    calls.append(sys.modules[name].value)
    sys.modules[name].value = "changed"  # type: ignore[attr-defined]


def test_before_the_import(module: str) -> None:
    calls: list[str] = []
    late.after_import(module, lambda: change(module, calls))
    assert importlib.import_module(module).value == "changed"
    assert calls == ["own"]


def test_after_the_import(module: str) -> None:
    calls: list[str] = []
    importlib.import_module(module)
    late.after_import(module, lambda: change(module, calls))
    assert calls == ["own"]


def test_amid_the_import(module: str) -> None:
    """As where importing a library imports torch: what the library defines later is there."""
    calls: list[str] = []
    sys.modules["during"].hook = lambda: late.after_import(  # type: ignore[attr-defined]
        module, lambda: change(module, calls)
    )
    found: dict[str, object] = {}
    exec(f"from {module} import value", found)
    assert found["value"] == "changed"
    assert calls == ["own"]
    assert type(sys.modules[module]) is ModuleType
    exec(f"from {module} import value", found)
    assert calls == ["own"]
