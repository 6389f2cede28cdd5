"""The page on chips."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tools import chip_keys
from torch_loom import chips
from torch_loom.chips.chip import figures

if TYPE_CHECKING:
    from pathlib import Path


def test_the_example_is_a_chip(tmp_path: Path) -> None:
    path = tmp_path / "mychip.toml"
    path.write_text(chip_keys.EXAMPLE)
    assert chips.load(path).memory_bytes == 8 << 30


def test_every_key_has_a_row() -> None:
    page = chip_keys.page()
    assert chip_keys.EXAMPLE in page
    for key, entry in figures().items():
        assert f"\n| `{key}` |" in page
        assert entry.metadata["meaning"].replace("|", "\\|") in page
