"""The cache of what Inductor generated: code of another torch-loom is not run."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING

import pytest
import torch
from torch._dynamo.utils import counters

from torch_loom.compiler.inductor import cache_key

if TYPE_CHECKING:
    from pathlib import Path


def outcome(compiled_by: str, monkeypatch: pytest.MonkeyPatch) -> dict[str, int]:
    """Compiles a function with the package in a given state; returns the counters of both caches."""
    monkeypatch.setattr(cache_key, "digest", lambda: compiled_by)
    torch._dynamo.reset()
    counters.clear()
    x = torch.arange(8.0, device="loom")
    torch.testing.assert_close(torch.compile(lambda x: (x * 2).sin() + 1)(x), (x * 2).sin() + 1)
    kept = {
        "inductor": ("fxgraph_cache_hit", "fxgraph_cache_miss"),
        "aot_autograd": ("autograd_cache_hit", "autograd_cache_miss"),
    }
    found = {name: counters[part][name] for part, names in kept.items() for name in names}
    return {name: number for name, number in found.items() if number}


@pytest.mark.slow
def test_code_of_another_version_is_generated_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from torch._inductor import config
    from torch._inductor.utils import fresh_cache

    simple = {"compile_threads": 1, "cpp_cache_precompile_headers": False}
    missed = {"fxgraph_cache_miss": 1, "autograd_cache_miss": 1}
    with config.patch(simple), fresh_cache(dir=str(tmp_path)):
        assert outcome("an older one", monkeypatch) == missed
        assert outcome("an older one", monkeypatch) == {"fxgraph_cache_hit": 1, "autograd_cache_hit": 1}
        assert outcome("a newer one", monkeypatch) == missed


def test_the_key_has_the_sources_and_the_extension(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for folder in cache_key._FOLDERS:
        (tmp_path / folder).mkdir(parents=True)
        (tmp_path / folder / "one.py").write_text("")
    extension = tmp_path / "_C.so"
    extension.write_bytes(b"built")
    monkeypatch.setattr(cache_key, "_ROOT", tmp_path)
    monkeypatch.setattr(cache_key._C, "__file__", str(extension))
    found = set()
    for path in (tmp_path / "none", extension, *sorted(tmp_path.rglob("*.py"))):
        path.write_text(f"changed {path}")
        found.add(cache_key.digest.__wrapped__())
    assert len(found) == 2 + len(cache_key._FOLDERS)


@pytest.mark.long
def test_inductor_asks_for_it() -> None:
    importlib.import_module("torch._inductor.compile_fx")
    from torch._inductor.codegen.common import get_custom_backend_pass_for_device

    found = get_custom_backend_pass_for_device("loom")
    assert found is not None
    assert found.uuid() == cache_key.digest()
