"""Graphs that a program captures or puts together, and pools of memory, by CUDA's runtime library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.kernels.cuda_cpp.test_thrust import library_of

pytestmark = pytest.mark.long


def failure_of(library: ctypes.CDLL, name: str) -> bytes | None:
    """Return what a function of a program reports: the text of the check that failed, or None."""
    function = getattr(library, name)
    function.restype = ctypes.c_char_p
    failure: bytes | None = function()
    return failure


def test_captured_graphs_and_pools(tmp_path: Path) -> None:
    library = library_of("captured_graphs", tmp_path)
    assert failure_of(library, "replayed") is None
    assert failure_of(library, "copied") is None
    assert failure_of(library, "refused") is None
    assert failure_of(library, "pooled") is None


def test_graphs_node_by_node(tmp_path: Path) -> None:
    library = library_of("graph_nodes", tmp_path)
    assert failure_of(library, "launched") is None
    assert failure_of(library, "filled") is None
    assert failure_of(library, "refused_nodes") is None
    assert failure_of(library, "changed") is None
    assert failure_of(library, "asked") is None
