"""The error of an index out of range where the op raises it itself: ``TORCH_LOOM_ASSERTS=immediate``."""

from __future__ import annotations

import torch


class AssertedIndexError(torch.AcceleratorError, IndexError):
    """What tests written for the CPU expect, and what those written for a GPU expect."""

    error_code = 710  # CUDA's cudaErrorAssert
