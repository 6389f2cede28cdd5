"""xFormers: kernels of its own, compiled for CUDA. It says that it has none."""

from __future__ import annotations

import pytest
import torch

ops = pytest.importorskip("xformers.ops")


@pytest.mark.report(
    "facebookresearch/xformers", "`memory_efficient_attention` says which kernels do not fit, and why"
)
def test_memory_efficient_attention() -> None:
    q = torch.randn(2, 64, 4, 32, device="cuda", dtype=torch.float16)
    with pytest.raises(
        NotImplementedError, match="No operator found for `memory_efficient_attention_forward`"
    ):
        ops.memory_efficient_attention(q, q, q)
