"""Graphs that a program captures or puts together, and pools of memory, by CUDA's runtime library."""

from __future__ import annotations

import ctypes
from pathlib import Path

import pytest

from tests.kernels.cuda_cpp.test_thrust import library_of

pytestmark = pytest.mark.long


@pytest.mark.parametrize("name", ["replayed", "refused", "pooled"])
def test_runtime_library(name: str, tmp_path: Path) -> None:
    function = getattr(library_of("captured_graphs", tmp_path), name)
    function.restype = ctypes.c_char_p
    assert function() is None


@pytest.mark.parametrize("name", ["launched", "filled", "refused_nodes"])
def test_graphs_node_by_node(name: str, tmp_path: Path) -> None:
    function = getattr(library_of("graph_nodes", tmp_path), name)
    function.restype = ctypes.c_char_p
    assert function() is None
