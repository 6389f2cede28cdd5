"""Windows of signals made on the device: eager, on a busy stream, captured, and where nothing is computed."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "windows"

WINDOWS = ("bartlett_window", "blackman_window", "hamming_window", "hann_window", "kaiser_window")


@pytest.mark.parametrize("length", [0, 1, 9])
@pytest.mark.parametrize("name", WINDOWS)
def test_windows_are_those_of_the_cpu(name: str, length: int) -> None:
    function = getattr(torch, name)
    window = function(length, device="loom")
    assert window.device.type == "loom"
    torch.testing.assert_close(window.cpu(), function(length), rtol=0, atol=0)
    with torch.loom.stream(torch.loom.Stream()):
        queued = function(length, device="loom")
    torch.loom.synchronize()
    torch.testing.assert_close(queued.cpu(), function(length), rtol=0, atol=0)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16, torch.float64])
def test_kaiser_windows_of_all_arguments(dtype: torch.dtype) -> None:
    for arguments in ((7, False), (7, True, 5.5), (7, False, 0.0)):
        wanted = torch.kaiser_window(*arguments, dtype=torch.float64).to(dtype)
        window = torch.kaiser_window(*arguments, dtype=dtype, device="loom")
        assert window.dtype == dtype
        torch.testing.assert_close(window.cpu(), wanted)


def test_a_kaiser_window_is_captured() -> None:
    torch.kaiser_window(8, device="loom")
    graph = torch.loom.CUDAGraph()
    with torch.loom.graph(graph):
        window = torch.kaiser_window(8, device="loom")
    window.zero_()
    graph.replay()
    torch.testing.assert_close(window.cpu(), torch.kaiser_window(8))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"window_length": -1}, "non-negative window_length, got window_length=-1"),
        ({"window_length": 4, "dtype": torch.int32}, "floating point dtypes, got: Int"),
        ({"window_length": 4, "layout": torch.sparse_coo}, "not implemented for sparse types"),
    ],
)
def test_what_is_no_kaiser_window(options: dict[str, object], words: str) -> None:
    with pytest.raises(RuntimeError, match=words):
        torch.kaiser_window(**options, device="loom")


def test_a_dry_run_makes_windows(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "a_dry_run_makes_windows.py", {"TORCH_LOOM_DRIVER": "null"})
