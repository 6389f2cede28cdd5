"""Which versions of PyTorch and which platforms this package knows, and what differs between the versions.

It imports neither torch nor the rest of the package: setup.py reads it by its path. What differs in C++
stands in ``csrc/torch/core/torch_version.h``; docs/upstream.md has the table.
"""

from __future__ import annotations

import re
import sys
from importlib.machinery import EXTENSION_SUFFIXES
from mmap import mmap
from typing import NamedTuple

Minor = tuple[int, int]

# The newest three minors; dependencies of pyproject.toml say the same to pip.
OLDEST: Minor = (2, 13)
NEWEST: Minor = (2, 15)

# How the names of torch._C begin that builds for CUDA alone have.
CUDA_PREFIXES = ("_cuda", "_Cuda", "_CUDA", "_cudnn", "_nccl", "_StaticCuda", "_FastCuda")

# Names of torch._C for CUDA that not all known versions have, by the first that has them. An entry ends with
# the version before: once that is not known any more, every version has the names.
NEW_NAMES: dict[Minor, tuple[str, ...]] = {
    # Ends with 2.13.
    (2, 14): (
        "_cuda_annotateMemory",
        "_cuda_memoryMetadataSupported",
        "_cuda_tunableop_get_cublaslt_requested_algo_count",
        "_cuda_tunableop_set_cublaslt_requested_algo_count",
        "_cudnn_clear_dropout_state",
    ),
    # Ends with 2.14.
    (2, 15): (
        "_is_cudnn_attention_decode_disabled",
        "_cuda_tunableop_clear_all",
        "_cuda_tunableop_pop_dynamic_dims_mask",
        "_cuda_tunableop_push_dynamic_dims_mask",
        "_cuda_tunableop_wildcard_fallback_enable",
        "_cuda_tunableop_wildcard_fallback_is_enabled",
    ),
}

# What makes communicators of NCCL in torch.distributed.distributed_c10d, beside the first, by the version
# since which it is asked for the backend "nccl". Ends with 2.14, as above.
NCCL_CREATORS: dict[Minor, tuple[str, ...]] = {
    (2, 15): ("_create_nccl2_process_group", "_create_nccl_lazy_process_group"),
}


class DefaultWheel(NamedTuple):
    """The versions of NVIDIA's libraries that the default wheel of a version of PyTorch is built with.

    Attributes:
        cuda: of the CUDA toolkit.
        cudnn, nccl, cusparselt: of the libraries of these names.
    """

    cuda: str
    cudnn: tuple[int, int, int]
    nccl: tuple[int, int, int]
    cusparselt: tuple[int, int, int]


# The newest last; an entry ends with its own version. Source: requires_dist of the wheels on PyPI, as in
# cuda-toolkit 13.0.3, nvidia-cudnn-cu13 9.20.0.48, nvidia-nccl-cu13 2.29.7, nvidia-cusparselt-cu13 0.8.1.
DEFAULT_WHEELS: dict[Minor, DefaultWheel] = {
    (2, 13): DefaultWheel(cuda="13.0", cudnn=(9, 20, 0), nccl=(2, 29, 7), cusparselt=(0, 8, 1)),
    (2, 14): DefaultWheel(cuda="13.0", cudnn=(9, 24, 0), nccl=(2, 30, 7), cusparselt=(0, 8, 1)),
    (2, 15): DefaultWheel(cuda="13.2", cudnn=(9, 26, 0), nccl=(2, 30, 7), cusparselt=(0, 8, 1)),
}

# In a wheel that is for several PyTorchs, the folder of the package with an extension for each minor version,
# in a folder of its name, as torch2.14. What a build for one PyTorch makes stands in the package itself.
EXTENSIONS = "extensions"

# With 1, a PyTorch that is newer is tried.
ANY_TORCH = "TORCH_LOOM_ANY_TORCH"


def minor_of(version: str) -> Minor:
    """Return major and minor of a version: (2, 14) of ``2.14.1+cu130``; (0, 0) of what is none."""
    match = re.match(r"(\d+)\.(\d+)", version)
    return (int(match[1]), int(match[2])) if match else (0, 0)


def names_lacking(version: str) -> frozenset[str]:
    """Return the names of torch._C for CUDA that a version does not have yet."""
    running = minor_of(version)
    return frozenset(name for since, names in NEW_NAMES.items() if running < since for name in names)


def default_wheel(version: str) -> DefaultWheel:
    """Return what the default wheel of a version has; of one that is not known, the newest that is."""
    return DEFAULT_WHEELS.get(minor_of(version), DEFAULT_WHEELS[NEWEST])


def is_release(version: str) -> bool:
    """Return whether it is a release: neither a nightly build nor a private one."""
    return re.fullmatch(r"\d+\.\d+(\.\d+)*(\+(cpu|cu\d+|rocm[\d.]+|xpu))?", version) is not None


def have_one_abi(built_with: str, running: str) -> bool:
    """Return whether an extension built with one PyTorch loads into the other.

    Releases of one minor keep their binary interface, builds for the CPU and for CUDA have the same. Any
    other build has an interface of its own.
    """
    if is_release(built_with) and is_release(running):
        return minor_of(built_with) == minor_of(running)
    return built_with == running


def record(version: str, extension: bytes) -> str:
    """Return what stands beside an extension: which PyTorch it was built against, and what it is.

    ``_register/fitness.py`` compares it with the file before it loads that.
    """
    return (
        f'"""Written when the extension was built."""\n\nTORCH_VERSION = "{version}"\n'
        f"EXTENSION_BYTES = {len(extension)}\nEXTENSION_CHECKSUM = {checksum(extension)}\n"
    )


def checksum(content: bytes | mmap) -> int:
    """Return the sum of a file's 64-bit words and of its last bytes; it finds damage, not words exchanged.

    A CRC takes four times as long, at each import of torch.
    """
    num_words = len(content) // 8
    last = int.from_bytes(content[8 * num_words :], "little")
    try:
        import numpy
    except ImportError:  # as may be where the extension is built
        return (sum(memoryview(content)[: 8 * num_words].cast("Q")) + last) % 2**64
    return (int(numpy.frombuffer(content, "<u8", num_words).sum()) + last) % 2**64


def refusal(version: str, *, tries_any: bool = False) -> str | None:
    """Return why a version of PyTorch is not one of those that this package knows, or None.

    Args:
        version: as ``torch.__version__`` says it.
        tries_any: whether TORCH_LOOM_ANY_TORCH asks to try newer ones.
    """
    minor = minor_of(version)
    oldest, newest = (".".join(map(str, each)) for each in (OLDEST, NEWEST))
    if minor < OLDEST:
        return (
            f"torch {version} is too old: torch-loom knows {oldest} to {newest}. Install one of these, as in "
            f"`pip install torch=={newest}.*`, and build torch-loom again."
        )
    if minor > NEWEST and not tries_any:
        name = ".".join(map(str, minor))
        return (
            f"torch {name} was not known when this was built: torch-loom knows {oldest} to {newest}. "
            f"Install a newer torch-loom, or one of these versions of torch; {ANY_TORCH}=1 tries {version} "
            "anyway, when torch-loom is built and when it is loaded."
        )
    return None


class Platform(NamedTuple):
    """What decides whether the extension can be compiled.

    Attributes:
        system: as ``sys.platform``.
        implementation: of Python, as ``sys.implementation.name``.
        abi: what the names of extensions say, which ends with the C library's name.
        is_debug: whether this is a debug build of Python.
    """

    system: str
    implementation: str
    abi: str
    is_debug: bool


def this_platform() -> Platform:
    """Return the platform of the running interpreter."""
    abi = EXTENSION_SUFFIXES[0].strip(".").removesuffix(".so")
    return Platform(sys.platform, sys.implementation.name, abi, hasattr(sys, "gettotalrefcount"))


_CONTAINER = "a container with Linux and glibc"


def platform_refusal(platform: Platform) -> str | None:
    """Return why torch-loom does not run on a platform, and what does, in a sentence; or None."""
    if platform.system == "darwin":
        return f"torch-loom runs on Linux, and this is macOS: use {_CONTAINER}."
    if platform.system in ("win32", "cygwin"):
        return f"torch-loom runs on Linux, and this is Windows: use WSL, or {_CONTAINER}."
    if not platform.system.startswith("linux"):
        return f"torch-loom runs on Linux, and this is {platform.system}: use {_CONTAINER}."
    if platform.implementation != "cpython":
        name = platform.implementation
        return f"torch-loom is an extension of CPython, as PyTorch is, and this is {name}: use CPython."
    if "musl" in platform.abi:
        return f"PyTorch has no wheels for musl, the C library here (Alpine Linux): use {_CONTAINER}."
    if platform.is_debug:
        return "PyTorch has no wheels for a debug build of Python, which this is: use a release build."
    return None
