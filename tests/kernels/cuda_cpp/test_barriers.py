"""Barriers in shared memory, on which warps wait for one another, and pipelines of copies."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import torch_loom.device as loom

SOURCE = (Path(__file__).parent / "programs" / "barriers.cu").read_text(encoding="utf-8")


@pytest.mark.long
@pytest.mark.parametrize("checks", ["0", "1"])
def test_warps_hand_over_by_barriers(checks: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_CHECK_KERNELS", checks)
    x = torch.arange(7 * 32, dtype=torch.int32).reshape(7, 32)
    y = torch.zeros(3, 32, dtype=torch.int32, device="loom")
    kernel = loom._compile_kernel(SOURCE, "hands_over")
    for out in y:
        kernel((1,), (64,), (x.to("loom"), out, 7))
    assert torch.equal(y.cpu(), x.sum(0, dtype=torch.int32).flip(0).expand(3, 32))


@pytest.mark.long
def test_a_pipeline_of_a_thread_copies() -> None:
    x = torch.arange(6 * 32, dtype=torch.int32).reshape(6, 32)
    y = torch.zeros(6, 32, dtype=torch.int32, device="loom")
    loom._compile_kernel(SOURCE, "copies")((1,), (32,), (x.to("loom"), y, 6))
    assert torch.equal(y.cpu(), x.flip(1))
