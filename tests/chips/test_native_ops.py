"""The ops that a chip lists as its own, and the page made of them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tools import supported_ops
from torch_loom import chips
from torch_loom.errors import ChipError

ROOT = Path(__file__).parents[2]
ATOM = Path(chips.__file__).with_name("atom.toml").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", chips.available())
def test_listed_ops_exist(name: str) -> None:
    for op in chips.load(name).native_ops or ():
        base, _, overload = op.partition(".")
        packet = getattr(torch.ops.aten, base)
        assert not overload or overload in packet.overloads()


def test_which_chips_list_their_ops() -> None:
    assert chips.load("loom1").native_ops is None
    assert chips.load("h200").native_ops is None
    atom = chips.load("atom").native_ops
    assert atom is not None
    assert {"abs", "linear", "where", "max.default", "cat", "arange"} <= set(atom)
    assert "exp" not in atom
    assert "native_ops" in chips.load("atom").sources


def _with_ops(tmp_path: Path, line: str) -> Path:
    start = ATOM.index("native_ops = [")
    end = ATOM.index("]\n", start) + 2
    path = tmp_path / "own.toml"
    path.write_text(ATOM[:start] + line + ATOM[end:], encoding="utf-8")
    return path


def test_absent_or_all_means_every_op(tmp_path: Path) -> None:
    assert chips.load(_with_ops(tmp_path, "")).native_ops is None
    assert chips.load(_with_ops(tmp_path, 'native_ops = "all"\n')).native_ops is None
    assert chips.load(_with_ops(tmp_path, "native_ops = []\n")).native_ops == ()
    assert chips.load(_with_ops(tmp_path, 'native_ops = ["add"]\n')).native_ops == ("add",)


@pytest.mark.parametrize(
    "value",
    ['"most"', "3", "[1]", '["aten::add"]', '["add", "add"]', '["a.b.c"]', '[""]', f'["{"a" * 101}"]', "{}"],
)
def test_bad_lists_are_refused(tmp_path: Path, value: str) -> None:
    with pytest.raises(ChipError, match="native_ops = ") as caught:
        chips.load(_with_ops(tmp_path, f"native_ops = {value}\n"))
    assert "Allowed: 'all', or a list" in str(caught.value)


@pytest.mark.long
def test_the_page_of_supported_ops_is_up_to_date() -> None:
    written = (ROOT / "docs" / "supported_ops.md").read_text(encoding="utf-8")
    assert written == supported_ops.page(), "run `make docs`"


@pytest.mark.long
def test_what_the_page_says() -> None:
    page = supported_ops.page()
    headings = [line[3:] for line in page.splitlines() if line.startswith("## ")]
    assert headings == [*chips.available(), "Families"]
    atom = page.partition("## atom")[2].partition("\n## ")[0]
    native, _, others = atom.partition("<details>")
    assert "`softmax`" in native
    assert "`exp`" in others
    assert "`mul_`" not in others
    for never in ("copy_", "view", "as_strided", "empty", "record_stream", "_local_scalar_dense", "_foobar"):
        assert f"`{never}`" not in others, never
    assert "flash_attention_for_cpu" not in others
