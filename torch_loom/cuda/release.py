"""What PyTorch's own wheel for CUDA has inside: versions that libraries ask for before they do anything else.

They are those of the running release's default wheel, which ``pip install torch`` takes from PyPI for Linux,
as its requirements name them. A build of PyTorch for CUDA has versions of its own.
"""

from __future__ import annotations

import torch

from torch_loom import config, torch_version
from torch_loom.device._core.first_use import _is_gpu

Version = tuple[int, int, int]

# What a build for CUDA says of itself; None on a build for the CPU.
_own_cuda: str | None = torch.version.cuda


def default_wheel() -> torch_version.DefaultWheel:
    """Return what the default wheel of the running release has; of an unknown release, the newest known."""
    return torch_version.default_wheel(str(torch.__version__))


def cuda_version() -> str | None:
    """Return what ``torch.version.cuda`` says; None for what is no build for CUDA.

    Raises:
        ConfigurationError: TORCH_LOOM_CUDA_VERSION or another setting has a bad value.
        ChipError: the first device's chip cannot be read.
    """
    version = config.cuda_version("")
    if version or version is None:
        return version
    return (_own_cuda or default_wheel().cuda) if _is_gpu() else None


def cuda_version_number() -> int:
    """Return the same as CUDA's headers and driver write it: 12080 for 12.8; 0 without one."""
    version = cuda_version()
    if version is None:
        return 0
    major, minor = version.split(".")[:2]
    return int(major) * 1000 + int(minor) * 10


def cudnn_number() -> int:
    """Return the version of cuDNN as its headers write it: 92000 for 9.20.0."""
    major, minor, patch = default_wheel().cudnn
    return major * 10000 + minor * 100 + patch


def cusparselt_number() -> int:
    """Return the version of cuSPARSELt as its headers write it: 801 for 0.8.1."""
    major, minor, patch = default_wheel().cusparselt
    return major * 1000 + minor * 100 + patch
