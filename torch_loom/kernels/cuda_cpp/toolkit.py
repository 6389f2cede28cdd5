"""A folder in the shape of a CUDA toolkit: what ``CUDA_HOME`` names under the name cuda.

``bin/nvcc`` is :mod:`~torch_loom.kernels.cuda_cpp.nvcc`, ``include`` the headers of this package. In
``lib64`` stand the names of libraries that extensions link, as text for the linker that names torch_loom's
extension module: it has their functions, and is in the process already.
"""

from __future__ import annotations

import hashlib
import importlib.util
import os
import shlex
import sys
import tempfile
from pathlib import Path

from torch_loom import config
from torch_loom.errors import ConfigurationError
from torch_loom.kernels.cuda_cpp import INCLUDE

# Libraries of PyTorch's and NVIDIA's whose functions the extension module has.
_LIBRARIES = (
    *("cudart", "cudart_static", "cudadevrt", "c10_cuda", "torch_cuda", "cuda"),
    *("cublas", "cublasLt", "nvrtc", "nvToolsExt"),
)
# CMake knows a toolkit by the last one.
_FOLDERS = ("bin", "lib64", "nvvm/libdevice")


def offer() -> None:
    """Make child processes find it first: in ``PATH``, and as ``CUDA_HOME`` and ``CUDA_PATH``."""
    extension = importlib.util.find_spec("torch_loom._C")
    if extension is None or extension.origin is None:
        return  # said by what loads it
    try:
        home = make(
            Path(extension.origin),
            is_checked=config.checks_kernels(),
            finds_races=config.watches_kernels(),
        )
    except ConfigurationError:
        return  # said where something is compiled
    config.put_first("PATH", str(home / "bin"))
    os.environ.update(CUDA_HOME=str(home), CUDA_PATH=str(home))


def make(library: Path, *, is_checked: bool, finds_races: bool) -> Path:
    """Return the folder, made if it was not there.

    Args:
        library: the extension module.
        is_checked: whether what is compiled checks its accesses.
        finds_races: whether it looks for races and overflows, too.

    Raises:
        ConfigurationError: the folder of compiled kernels cannot be used.
    """
    root = Path(__file__).parents[3]
    checked = " --loom-races" if finds_races else " --loom-checked" if is_checked else ""
    nvcc = (
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(root))}${{PYTHONPATH:+:$PYTHONPATH}} TORCH_DEVICE_BACKEND_AUTOLOAD=0 "
        f"exec {shlex.quote(sys.executable)} -m torch_loom.kernels.cuda_cpp.nvcc{checked} "
        '--loom-toolkit="$(dirname "$(dirname "$(readlink -f "$0")")")" "$@"\n'
    )
    digest = hashlib.sha256(f"{nvcc}\0{library}\0{_LIBRARIES}{_FOLDERS}".encode()).hexdigest()[:16]
    folder = config.kernel_cache() / f"cuda-{digest}"
    if not folder.is_dir():
        # Whole or not at all: other processes make the same one.
        with tempfile.TemporaryDirectory(dir=folder.parent, prefix=".cuda-") as made:
            _fill(Path(made) / "cuda", nvcc, library)
            try:
                (Path(made) / "cuda").rename(folder)
            except OSError:
                if not folder.is_dir():
                    raise
    return folder


def _fill(folder: Path, nvcc: str, library: Path) -> None:
    for name in _FOLDERS:
        (folder / name).mkdir(parents=True)
    (folder / "include").symlink_to(INCLUDE)
    program = folder / "bin" / "nvcc"
    program.write_text(nvcc, encoding="utf-8")
    program.chmod(0o700)
    for name in _LIBRARIES:
        (folder / "lib64" / f"lib{name}.so").write_text(f'INPUT("{library}")\n', encoding="utf-8")
