"""What code that Inductor generates for a GPU calls of a build for CUDA."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from torch_loom.patches.declared import Place, patch

NO_BODY = "never: a CPU build has no body for it"


@patch("torch._C:_dynamo.guards._empty_strided_cuda", until=NO_BODY)
def buffers_of_device(place: Place) -> Any:
    """Generated code makes its buffers with a function whose body is in a build for CUDA alone."""
    device = torch.device(place.device)

    def empty_strided(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    return empty_strided


@patch("torch._inductor.config:use_static_cuda_launcher", until=NO_BODY)
def launched_by_triton(place: Place) -> Any:
    """Generated kernels are started by NVIDIA's driver from its machine code, past Triton's launcher."""
    return False
