"""How results are put together: what images keep of it, and what they may not name."""

from __future__ import annotations

import json
import sys
from collections import OrderedDict, defaultdict, deque, namedtuple
from enum import Enum
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.utils import _pytree as pytree

import torch_loom
from tests.image.forged import forged
from torch_loom.errors import ImageError
from torch_loom.image import structure

if TYPE_CHECKING:
    from pathlib import Path

X = torch.linspace(-1, 1, 24).reshape(3, 8)
Pair = namedtuple("Pair", "first second")


class Key(Enum):
    ONE = 1


def kept(value: Any) -> Any:
    leaves, spec = pytree.tree_flatten(value)
    return pytree.tree_unflatten(leaves, structure.loads(structure.dumps(spec)))


@pytest.mark.parametrize(
    "value",
    [
        1,
        [1, (2, {"a": 3, 4: None})],
        OrderedDict(b=1, a=[2]),
        deque([1, 2], 5),
        {"best": torch.return_types.max((1, 2)), "rest": [3]},
        defaultdict(list, {"a": 1}),
    ],
)
def test_containers_are_kept(value: Any) -> None:
    found = kept(value)
    assert found == value
    assert type(found) is type(value)
    assert repr(found) == repr(value)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": [1], "pair": Pair(2, {"b": 3})}, {"a": [1], "pair": (2, {"b": 3})}),
        ([{Key.ONE: 1, "x": 2}, 3], [(1, 2), 3]),
        ([{(1, 2): 1}], [(1,)]),
        ([defaultdict(lambda: 0, {"a": 1})], [{"a": 1}]),
        ([defaultdict(None, {"a": 1})], [{"a": 1}]),
    ],
)
def test_what_a_text_cannot_have_becomes_a_tuple_and_the_rest_stays(value: Any, expected: Any) -> None:
    assert kept(value) == expected


class Best(nn.Module):
    def forward(self, x: torch.Tensor) -> dict[str, Any]:
        return {"max": x.max(1), "pair": Pair(-x, [x])}


def test_results_have_the_models_structure(tmp_path: Path) -> None:
    run = torch_loom.compile(Best(), (X,))
    run.save(tmp_path / "best.loom")
    for one in (run, torch_loom.Executable.load(tmp_path / "best.loom")):
        result = one(X)
        assert isinstance(result["max"], torch.return_types.max)
        assert torch.equal(result["max"].indices.cpu(), X.max(1).indices)
        first, (second,) = result["pair"]
        assert torch.equal(-first, second)


def _leaves(count: int) -> list[dict[str, Any]]:
    return [{"type": None, "context": None, "children_spec": []}] * count


@pytest.mark.parametrize(
    ("kind", "context"),
    [
        (
            "collections.defaultdict",
            {"default_factory_module": "os", "default_factory_name": "abort", "dict_context": ["a"]},
        ),
        (
            "collections.defaultdict",
            {"default_factory_module": "builtins", "default_factory_name": "exec", "dict_context": ["a"]},
        ),
        ("builtins.dict", json.dumps([{"__enum__": True, "fqn": "imported_by_an_image:Key", "name": "ONE"}])),
        ("collections.namedtuple", "os.stat_result"),
        ("torch.return_types.__loader__", "null"),
        ("nobody.registered.this", "null"),
        ("builtins.dict", "3"),
        (7, "null"),
    ],
)
def test_a_structure_imports_nothing_and_calls_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: Any, context: Any
) -> None:
    (tmp_path / "imported_by_an_image.py").write_text("raise SystemExit('imported')")
    monkeypatch.syspath_prepend(tmp_path)
    image = tmp_path / "relu.loom"
    torch_loom.compile(nn.ReLU(), (X,)).save(image)
    text = json.dumps([1, {"type": kind, "context": context, "children_spec": _leaves(1)}])
    run = torch_loom.Executable.load(forged(image, ("specs", "out"), text))
    with pytest.raises(ImageError, match="results"):
        run(X)
    assert "imported_by_an_image" not in sys.modules


def test_a_structure_fits_the_results(tmp_path: Path) -> None:
    image = tmp_path / "relu.loom"
    torch_loom.compile(nn.ReLU(), (X,)).save(image)
    deep = "[" * 100_000 + "]" * 100_000
    for text in (structure.dumps(pytree.tree_structure([1, 2])), "x", 3, "[2, null]", deep):
        run = torch_loom.Executable.load(forged(image, ("specs", "out"), text))
        with pytest.raises(ImageError, match="structure"):
            run(X)
