"""Compiles C++ text to shared libraries for the host, kept for each user by the hash of the text."""

from __future__ import annotations

import _ctypes
import contextlib
import ctypes
import functools
import hashlib
import platform
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import torch

from torch_loom import config
from torch_loom.config import settings
from torch_loom.errors import CompilationError
from torch_loom.kernels import kept

# A compilation that takes longer is shown on a terminal.
LONG_SECONDS = 2.0
# The name of the function that every text defines.
ENTRY = "loom_entry_"

# Division of integers by zero must not end the process: the check's handler, part of each text, leaves the
# kernel. No library behind it is linked, hence two steps.
_COMPILE = (
    "-c",
    "-x",
    "c++",
    "-std=c++17",
    "-O3",
    "-fPIC",
    "-fno-math-errno",
    "-w",
    "-fsanitize=integer-divide-by-zero",
    "-fno-sanitize-recover=integer-divide-by-zero",
)
_LINK = ("-shared",)
# The most negative number divided by −1 traps as well. Sums are checked too then, and wrap around.
_WHOLE_NUMBERS = ("-fsanitize=signed-integer-overflow", "-fsanitize-recover=signed-integer-overflow")

_functions: dict[str, int] = {}
_lock = threading.Lock()
# Of the C library, kept: what it loaded is used as long as the process lives.
_libraries: list[ctypes.CDLL] = []


# For kernels that were generated, which divide by nothing that is zero. The processor's features are part of
# the key.
FOR_THIS_MACHINE = (
    "-x",
    "c++",
    "-std=c++17",
    "-O3",
    "-march=native",
    "-fPIC",
    "-fno-math-errno",
    "-fno-trapping-math",
    "-fwrapv",
    "-fno-strict-aliasing",
    "-fopenmp-simd",
    "-w",
    "-shared",
)


def compiled(
    text: str, shown: str, *, divides_whole_numbers: bool = False, options: tuple[str, ...] | None = None
) -> int:
    """Return the address of the function :data:`ENTRY` in a C++ text.

    Args:
        text: what is compiled. Headers of the torch that is running can be included.
        shown: the part of it that the program wrote, for errors.
        divides_whole_numbers: whether signed integers of 32 or 64 bits may be divided.
        options: the compiler's options, which compile and link, in place of those for such a text:
            :data:`FOR_THIS_MACHINE`, and more behind them.

    Raises:
        CompilationError: there is no compiler, or it refuses the text; the message has its words.
        ConfigurationError: the cache's folder, or a library in it, cannot be used.
    """
    if options is None:
        options = (*_COMPILE, *_WHOLE_NUMBERS) if divides_whole_numbers else _COMPILE
    machine = features() if "-march=native" in options else platform.machine()
    key = "\0".join(
        (text, config.value(settings.COMPILER), *options, *_LINK, str(torch.__version__), machine)
    )

    def build(source: Path, library: Path) -> None:
        source.write_text(text, encoding="utf-8")
        if "-shared" in options:
            run([*options, str(source), "-o", str(library)], library, shown)
            return
        objects = source.with_suffix(".o")
        objects.unlink(missing_ok=True)
        include = str(Path(torch.__path__[0]) / "include")
        run([*options, "-I", include, str(source), "-o", str(objects)], objects, shown)
        run([*_LINK, str(objects), "-o", str(library)], library, shown)
        objects.unlink()

    return built(key, build)


def built(key: str, build: Callable[[Path, Path], None]) -> int:
    """Return the address of the function :data:`ENTRY` in a library that is built where none is kept.

    Args:
        key: all that the library depends on.
        build: makes the library at its second argument; the first is a place for its source.

    Raises:
        CompilationError: it cannot be loaded.
        ConfigurationError: the cache's folder, or a library in it, cannot be used.
    """
    digest = hashlib.sha256(key.encode()).hexdigest()
    with _lock:
        if digest not in _functions:
            _functions[digest] = _load(digest, build)
        return _functions[digest]


@functools.cache
def features() -> str:
    """Return what instructions the processor has: several machines may share the folder of kernels."""
    try:
        lines = Path("/proc/cpuinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return f"{platform.machine()} {platform.processor()}"
    wanted = ("flags", "features", "model name", "cpu part")
    return "\n".join(dict.fromkeys(line for line in lines if line.lower().startswith(wanted)))


def _load(digest: str, build: Callable[[Path, Path], None]) -> int:
    folder = config.kernel_cache()
    path = folder / f"{digest}.so"
    if kept.is_whole(path):
        kept.note_use(path)
    else:
        _build(folder, path, build)
    try:
        return _entry(path)
    except (OSError, AttributeError, UnicodeDecodeError):
        # Whole, but not what this process can load: another system may have made it.
        kept.forget(path)
    _build(folder, path, build)
    try:
        return _entry(path)
    except (OSError, AttributeError, UnicodeDecodeError) as error:
        kept.forget(path)
        raise CompilationError(
            f"What the C++ compiler {config.value(settings.COMPILER)!r} made cannot be loaded ({error}): "
            "name another one in TORCH_LOOM_COMPILER"
        ) from error


def _entry(path: Path) -> int:
    library = ctypes.CDLL(str(path))
    try:
        address = ctypes.cast(getattr(library, ENTRY), ctypes.c_void_p).value
    except AttributeError:
        # Otherwise the next library of this name would be mistaken for this library.
        _ctypes.dlclose(library._handle)
        raise
    assert address is not None
    _libraries.append(library)
    return address


def _build(folder: Path, path: Path, build: Callable[[Path, Path], None]) -> None:
    with kept.exclusive(folder, "lock"):
        if kept.is_whole(path):
            return
        # Always the same names, so that those of a killed process are overwritten.
        source, library = (folder / f"building.{end}" for end in ("cpp", "so"))
        for old in (source, library):
            old.unlink(missing_ok=True)
        try:
            build(source, library)
            kept.keep(library, path)
            source.unlink()
        except OSError as error:
            # A full disk is the compiler's failure or ours.
            for old in (source, library):
                old.unlink(missing_ok=True)
            raise config.kernel_cache_refused(
                f"a kernel cannot be kept there: {error.strerror}. Free some space, or name another folder"
            ) from error
        kept.shrink(folder, config.value(settings.KERNEL_CACHE_LIMIT))


@contextlib.contextmanager
def _said_when_long(what: str) -> Iterator[None]:
    """Print what is waited for, on a terminal, and at last how long it took."""
    if sys.stderr is None or not sys.stderr.isatty():
        yield
        return
    began, ended, has_said = time.monotonic(), threading.Event(), threading.Event()

    def say() -> None:
        if not ended.wait(LONG_SECONDS):
            has_said.set()
            print(f"{what} …", end="", file=sys.stderr, flush=True)

    speaker = threading.Thread(target=say, daemon=True)
    speaker.start()
    try:
        yield
    finally:
        ended.set()
        speaker.join()
        if has_said.is_set():
            print(f" {time.monotonic() - began:.0f} s", file=sys.stderr, flush=True)


def run(arguments: list[str], result: Path, shown: str) -> None:
    """Run the compiler.

    Args:
        arguments: its options.
        result: the file that it should make.
        shown: the part of the source that the program wrote, for errors.

    Raises:
        CompilationError: it cannot be run, or refuses the source.
    """
    compiler = config.value(settings.COMPILER)
    try:
        with _said_when_long(f"torch-loom: {compiler} is compiling a kernel"):
            done = subprocess.run(
                [compiler, *arguments], capture_output=True, text=True, errors="replace", check=False
            )
    except OSError as error:
        raise CompilationError(
            f"The C++ compiler {compiler!r} cannot be run ({error}): install one, or name it in "
            "TORCH_LOOM_COMPILER"
        ) from error
    if done.returncode != 0:
        raise CompilationError(f"{compiler} refused the code:\n{done.stderr.strip()}\n\nThe code:\n{shown}")
    if not result.is_file():
        raise CompilationError(
            f"The C++ compiler {compiler!r} succeeded, but wrote no {result.name}: name one that takes GCC's "
            "options in TORCH_LOOM_COMPILER"
        )
