"""Programs of CUDA C++: archives that start themselves, with their code as a library that has ``main``.

Imports no torch before a program runs: :mod:`~torch_loom.kernels.cuda_cpp.nvcc` writes them.
"""

from __future__ import annotations

import ctypes
import shlex
import signal
import sys
import tempfile
import zipfile
from pathlib import Path

_LIBRARY = "program.so"
# As under `loom run`.
_MAIN = """import torch_loom.as_cuda
from torch_loom.kernels.cuda_cpp.program import run

run()
"""


def write(library: Path, output: Path) -> None:
    """Write a program that this interpreter runs, with this torch_loom.

    Args:
        library: what it was linked to.
        output: where it goes.
    """
    root = Path(__file__).parents[3]
    start = (
        "#!/bin/sh\n"
        f"PYTHONPATH={shlex.quote(str(root))}${{PYTHONPATH:+:$PYTHONPATH}} "
        f'exec {shlex.quote(sys.executable)} "$0" "$@"\n'
    )
    output.unlink(missing_ok=True)  # it may be running
    with output.open("wb") as file:
        file.write(start.encode())
        # Not compressed: CMake looks for strings in a program.
        with zipfile.ZipFile(file, "w", zipfile.ZIP_STORED) as archive:
            archive.write(library, _LIBRARY)
            archive.writestr("__main__.py", _MAIN)
    output.chmod(0o755)


def run() -> None:
    """Run the program that this process was started as, with its arguments, and end with its status."""
    import torch  # noqa: F401  (torch_loom registers its devices with it)

    with (
        tempfile.TemporaryDirectory(prefix="loom-program-") as folder,
        zipfile.ZipFile(sys.argv[0]) as archive,
    ):
        library = ctypes.CDLL(archive.extract(_LIBRARY, folder), mode=ctypes.RTLD_GLOBAL)
    # Ctrl-C ends it: Python would wait for the end of main().
    signal.signal(signal.SIGINT, signal.SIG_DFL)
    words = [word.encode(errors="surrogateescape") for word in sys.argv]
    status = library.main(len(words), (ctypes.c_char_p * (len(words) + 1))(*words, None))
    raise SystemExit(status & 0xFF)
