"""The headers in front of each source of CUDA C++: precompiled once, and kept beside the kernels.

To read them takes longer than to compile most kernels. Imports no torch.
"""

from __future__ import annotations

import hashlib
import shutil
import subprocess
from collections.abc import Sequence
from functools import cache
from pathlib import Path

from torch_loom import config
from torch_loom.config import settings
from torch_loom.errors import ConfigurationError
from torch_loom.kernels import kept
from torch_loom.kernels.cuda_cpp import INCLUDE

_PRELUDE = "loom_cuda/prelude.h"
_BESIDE_TORCH = ("-include", "loom_cuda/beside_torch.h")
# Options that have the headers read with each source.
READ = ("-include", _PRELUDE, *_BESIDE_TORCH)
# How a file of GCC's begins, which alone finds it again from what its preprocessor has written.
_OF_GCC = b"gpch"
# Where the folder of kernels may have less than this, headers of 70 MB would take the place of kernels.
_LEAST_BYTES = 1 << 30


@cache
def digest() -> str:
    """Return the digest of the headers, and of what rewrites a source."""
    found = hashlib.sha256()
    kernels = INCLUDE.parents[1]
    paths = [path for part in ("cuda_cpp", "emission/cpp", "ptx") for path in (kernels / part).rglob("*")]
    for path in sorted(path for path in paths if path.suffix != ".pyc" and path.is_file()):
        found.update(path.read_bytes())
    return found.hexdigest()


def included(compiler: Sequence[str], options: Sequence[str]) -> list[str]:
    """Return the preprocessor's options by which the headers stand in front of a source.

    They are precompiled where the compiler is GCC, and the folder of kernels can be written and has room;
    without that, each source takes longer. The first source of these options waits for it.

    Args:
        compiler: the command.
        options: with which the source is preprocessed and compiled, without its folders of headers.
    """
    header = _precompiled(compiler, options)
    if header is None:
        return [*READ]
    return ["-fpch-preprocess", "-include", str(header), *_BESIDE_TORCH]


def _precompiled(compiler: Sequence[str], options: Sequence[str]) -> Path | None:
    found = shutil.which(compiler[0])
    if found is None or config.value(settings.KERNEL_CACHE_LIMIT) < _LEAST_BYTES:
        return None  # a compiler that is missing is said by what calls it
    try:
        folder = config.kernel_cache()
        status = Path(found).stat()
        depends = (*compiler, found, status.st_size, status.st_mtime_ns, *options, INCLUDE, digest())
        name = hashlib.sha256("\0".join(map(str, depends)).encode(errors="surrogateescape")).hexdigest()
        header = folder / f"{name}.h"
        file = Path(f"{header}.gch")
        if not _is_there(header, file):
            with kept.exclusive(folder, "prelude.lock"):
                if not _is_there(header, file):
                    _build([*compiler, *options], header, file)
        kept.note_use(file)
        with file.open("rb") as contents:
            return header if contents.read(len(_OF_GCC)) == _OF_GCC else None
    except (ConfigurationError, OSError, subprocess.CalledProcessError):
        return None  # no folder, a full disk, or options that the compiler refuses for the source as well


def _is_there(header: Path, file: Path) -> bool:
    return header.is_file() and kept.is_whole(file)


def _build(command: list[str], header: Path, file: Path) -> None:
    # Always the same names, so that those of a killed process are overwritten.
    source, made = header.with_name("prelude.h"), header.with_name("prelude.gch")
    try:
        source.write_text(f'#include "{_PRELUDE}"\n', encoding="utf-8")
        given = ["-isystem", str(INCLUDE), "-x", "c++-header", str(source), "-o", str(made)]
        subprocess.run([*command, *given], check=True, capture_output=True)
        kept.keep(made, file)
        source.replace(header)  # what is read where the compiler finds that macros differ
    finally:
        for rest in (source, made):
            rest.unlink(missing_ok=True)
    kept.shrink(header.parent, config.value(settings.KERNEL_CACHE_LIMIT))


__all__ = ["READ", "digest", "included"]
