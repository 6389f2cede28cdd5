"""Which versions of PyTorch and which platforms are known, said once and meant everywhere."""

from __future__ import annotations

import random
import re
import sys
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
