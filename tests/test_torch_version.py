"""Which versions of PyTorch and which platforms are known, said once and meant everywhere."""

from __future__ import annotations

import ast
import random
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from torch_loom import torch_version
from torch_loom.torch_version import NEWEST, OLDEST, Platform

ROOT = Path(__file__).parents[1]
LINUX = Platform("linux", "cpython", "cpython-311-x86_64-linux-gnu", is_debug=False)


def test_known_versions_are_those_of_the_package_and_of_the_header() -> None:
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    assert f'"torch>={OLDEST[0]}.{OLDEST[1]},<{NEWEST[0]}.{NEWEST[1] + 1}"' in text
    header = (ROOT / "csrc/torch/core/torch_version.h").read_text(encoding="utf-8")
    assert re.findall(r"^#if !?LOOM_TORCH_AT_LEAST\((\d+)\)", header, re.MULTILINE)[:2] == [
        str(OLDEST[1]),
        str(NEWEST[1] + 1),
    ]


def test_the_running_version_is_known() -> None:
    assert torch_version.refusal(str(torch.__version__)) is None
    assert torch_version.platform_refusal(torch_version.this_platform()) is None


@pytest.mark.parametrize(
    ("version", "minor"),
    [("2.14.1+cu130", (2, 14)), ("2.13.0", (2, 13)), ("2.15.0.dev20260101+cpu", (2, 15)), ("main", (0, 0))],
)
def test_minor_of(version: str, minor: tuple[int, int]) -> None:
    assert torch_version.minor_of(version) == minor


@pytest.mark.parametrize(
    ("built_with", "running", "fits"),
    [
        ("2.14.1", "2.14.1+cu130", True),
        ("2.14.0+cpu", "2.14.1+cu130", True),
        ("2.13.0+cpu", "2.14.0+cpu", False),
        ("2.15.0.dev20260101+cpu", "2.15.0.dev20260101+cpu", True),
        ("2.15.0.dev20260101+cpu", "2.15.0.dev20260102+cpu", False),
        ("2.15.0.dev20260101+cpu", "2.15.0+cpu", False),
        ("2.14.0a0+git1234567", "2.14.0", False),
    ],
)
def test_binary_interfaces(built_with: str, running: str, fits: bool) -> None:
    assert torch_version.have_one_abi(built_with, running) is fits


def test_other_versions_are_refused_in_a_sentence() -> None:
    assert "torch 2.12.1+cpu is too old: torch-loom knows 2.13 to 2.15" in str(
        torch_version.refusal("2.12.1+cpu")
    )
    newer = str(torch_version.refusal("2.16.0"))
    assert newer.startswith("torch 2.16 was not known when this was built: torch-loom knows 2.13 to 2.15.")
    assert "TORCH_LOOM_ANY_TORCH=1 tries 2.16.0 anyway" in newer
    assert torch_version.refusal("2.16.0", tries_any=True) is None
    assert torch_version.refusal("2.12.0", tries_any=True) is not None


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"system": "darwin"}, ("macOS", "container")),
        ({"system": "win32"}, ("Windows", "WSL")),
        ({"system": "freebsd14"}, ("freebsd14", "container")),
        ({"implementation": "pypy"}, ("pypy", "use CPython")),
        ({"abi": "cpython-311-x86_64-linux-musl"}, ("musl", "container")),
        ({"is_debug": True}, ("debug build of Python", "release build")),
    ],
)
def test_other_platforms_are_refused_in_a_sentence(
    changes: dict[str, object], words: tuple[str, ...]
) -> None:
    assert torch_version.platform_refusal(LINUX) is None
    said = torch_version.platform_refusal(LINUX._replace(**changes))  # type: ignore[arg-type]
    assert said is not None
    for word in words:
        assert word in said
    assert said.endswith(".")


def test_the_sum_of_a_file_with_and_without_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    content = random.Random(0).randbytes(8 * 1000 + 3)
    found = torch_version.checksum(content)
    assert 0 < found < 2**64
    monkeypatch.setitem(sys.modules, "numpy", None)
    assert torch_version.checksum(content) == found
    assert torch_version.checksum(content[:4000] + b"\x00" + content[4001:]) != found


def test_each_difference_ends_within_the_known_versions() -> None:
    """What all known versions have is no difference any more."""
    known = [(OLDEST[0], minor) for minor in range(OLDEST[1], NEWEST[1] + 1)]
    assert list(torch_version.DEFAULT_WHEELS) == known
    for table in (torch_version.NEW_NAMES, torch_version.NCCL_CREATORS):
        assert set(table) <= set(known[1:])
    text = (ROOT / "torch_loom" / "torch_version.py").read_text(encoding="utf-8")
    for major, minor in torch_version.NEW_NAMES:
        assert f"# Ends with {major}.{minor - 1}.\n    ({major}, {minor}): (" in text


def test_tables_by_version() -> None:
    assert "_cudnn_clear_dropout_state" in torch_version.names_lacking("2.13.0+cpu")
    assert torch_version.names_lacking("2.14.1") == set(torch_version.NEW_NAMES[2, 15])
    assert torch_version.names_lacking("2.15.0") == torch_version.names_lacking("2.16.0") == set()
    assert torch_version.default_wheel("2.14.1+cu130").cudnn == (9, 24, 0)
    assert torch_version.default_wheel("2.99.0") == torch_version.DEFAULT_WHEELS[NEWEST]


def comparisons_of_torch(tree: ast.Module) -> Iterator[str]:
    """Yield what asks for the version of PyTorch in order to do something else then."""
    for node in ast.walk(tree):
        text = ast.unparse(node) if isinstance(node, (ast.Attribute, ast.Call, ast.Compare, ast.Name)) else ""
        if isinstance(node, (ast.Attribute, ast.Name)) and text.split(".")[-1] in (
            "minor_of",
            "TorchVersion",
        ):
            yield text
        elif isinstance(node, ast.Compare):
            versions = [
                each
                for part in (node.left, *node.comparators)
                if isinstance(part, ast.Tuple) and len(part.elts) in (2, 3)
                for each in [ast.unparse(part)]
                if re.match(r"\(2, \d\d\b", each)
            ]
            if versions or re.search(r"\btorch\.__version__|\btorch\.version\.__version__", text):
                yield text
        elif isinstance(node, ast.Call) and re.match(r".*torch\.__version__\)?\.startswith", text):
            yield text


def test_no_other_module_compares_the_version_of_torch() -> None:
    """What differs from version to version stands in one module, with the version in which it ends."""
    fine = {"torch_version.py", "_register/fitness.py"}
    found = {}
    for path in sorted((ROOT / "torch_loom").rglob("*.py")):
        name = path.relative_to(ROOT / "torch_loom").as_posix()
        if name not in fine:
            asked = list(comparisons_of_torch(ast.parse(path.read_text(encoding="utf-8"))))
            if asked:
                found[name] = asked
    assert found == {}


@pytest.mark.parametrize(
    "text",
    [
        "torch_version.minor_of(torch.__version__)",
        "if torch.__version__ >= '2.14': pass",
        "is_new = running >= (2, 14)",
        "str(torch.__version__).startswith('2.14')",
        "from torch.torch_version import TorchVersion; TorchVersion('2.14')",
    ],
)
def test_a_comparison_is_found(text: str) -> None:
    assert list(comparisons_of_torch(ast.parse(text)))
