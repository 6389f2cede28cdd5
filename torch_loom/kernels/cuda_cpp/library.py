"""One kernel of CUDA C++ as a library with a single entry: what ``torch.cuda._compile_kernel`` compiles."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from torch_loom import config
from torch_loom.config import settings
from torch_loom.errors import CompilationError
from torch_loom.kernels.cuda_cpp import INCLUDE, nvcc, prelude
from torch_loom.kernels.cuda_cpp.attempts import compile_rewritten
from torch_loom.kernels.cuda_cpp.rewrite import RefusedError, rewrite

_TEXT = """#include "loom_cuda/called.h"
#line 1 "code"
{source}
#line 1 "generated"
extern "C" __attribute__((visibility("default"))) const char* {entry}(
    void* const* loom_addresses, const int64_t* loom_numbers, const char* loom_scalars) {{
  return loom_cuda::call<&{kernel}>("{name}", loom_addresses, loom_numbers, loom_scalars, &{kernel});
}}
"""


def text_of(source: str, kernel: str, entry: str) -> str:
    """Return the C++ text around a kernel, before the preprocessor.

    Args:
        source: the program's CUDA C++.
        kernel: a function of it, with its arguments if it is a template.
        entry: how the library's function is called.
    """
    name = kernel.replace("\\", "\\\\").replace('"', '\\"')
    return _TEXT.format(source=source, kernel=kernel, entry=entry, name=name)


def options(*, is_checked: bool, finds_races: bool = False) -> list[str]:
    """Return the compiler's options.

    Args:
        is_checked, finds_races: whether accesses are checked; whether races and overflows are looked for.
    """
    return [*nvcc.compile_options(), *nvcc.checks(is_checked, finds_races), "-std=c++20"]


def key_of(text: str, given: list[str]) -> str:
    """Return what a library of this text depends on."""
    return "\0".join((text, *given, prelude.digest()))


def build(
    text: str,
    given: list[str],
    includes: Sequence[str],
    run: Callable[[list[str], Path], None],
    source: Path,
    library: Path,
    links: Path,
) -> None:
    """Make a library.

    Args:
        text: of :func:`text_of`.
        given: of :func:`options`.
        includes: folders of the program's headers.
        run: runs the compiler with options, which make a file; raises CompilationError with its messages.
        source: where the text may be written.
        library: where the library goes.
        links: the extension module, whose functions it calls.

    Raises:
        RefusedError: the program's text needs what there is not here.
        CompilationError: the compiler refuses it.
    """
    preprocessed, objects = source.with_suffix(".ii"), source.with_suffix(".o")
    try:
        source.write_text(text, encoding="utf-8")
        front = prelude.included([config.value(settings.COMPILER)], given)
        folders = [*(f"-I{folder}" for folder in includes), "-isystem", str(INCLUDE)]
        run(["-E", "-x", "c++", *front, *given, *folders, str(source), "-o", str(preprocessed)], preprocessed)
        refused: list[RefusedError] = []
        rewritten = rewrite(preprocessed.read_text(encoding="utf-8"), refused=refused)
        own = [option for option in given if not option.startswith("-D")]
        compiles = ["-c", "-x", "c++-cpp-output", "-fpreprocessed", *own, str(preprocessed)]

        def attempt(code: str) -> CompilationError | None:
            preprocessed.write_text(code, encoding="utf-8")
            try:
                run([*compiles, "-o", str(objects)], objects)
            except CompilationError as error:
                return error
            return None

        compile_rewritten(rewritten, refused, attempt)
        run(["-shared", str(objects), str(links), "-o", str(library)], library)
    finally:
        for rest in (preprocessed, objects):
            rest.unlink(missing_ok=True)


__all__ = ["RefusedError", "build", "key_of", "options", "text_of"]
