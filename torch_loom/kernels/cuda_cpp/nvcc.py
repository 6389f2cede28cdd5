"""Takes nvcc's place: ``python -m torch_loom.kernels.cuda_cpp.nvcc OPTIONS``, with nvcc's options.

A source goes through the host's preprocessor, :mod:`~torch_loom.kernels.cuda_cpp.rewrite`, and its compiler.
Imports no torch: a build calls it once for each source.
"""

from __future__ import annotations

import contextlib
import os
import shlex
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

from torch_loom import config
from torch_loom.config import settings
from torch_loom.kernels.cuda_cpp import INCLUDE, prelude, program
from torch_loom.kernels.cuda_cpp.attempts import compile_rewritten
from torch_loom.kernels.cuda_cpp.own_functions import TOOLS, keep_own_functions
from torch_loom.kernels.cuda_cpp.rewrite import RefusedError, rewrite

_CUDA_SUFFIXES = (".cu", ".cuh")
_HOST_SUFFIXES = (".cpp", ".cc", ".cxx", ".c++", ".C", ".c")

# Options of nvcc that mean nothing here, and take the next word or none.
_IGNORED_WITH_VALUE = {
    *("-gencode", "--generate-code", "-arch", "--gpu-architecture", "-code", "--gpu-code"),
    *("-Xptxas", "--ptxas-options", "-Xcudafe", "-Xnvlink", "-Xfatbin", "-maxrregcount", "--maxrregcount"),
    *("-ccbin", "--compiler-bindir", "-t", "--threads", "-diag-suppress", "--diag-suppress", "-lineinfo="),
    *("--default-stream", "-default-stream", "-std=", "--maxrregcount="),
    *("--keep-dir", "-keep-dir", "--libdevice-directory", "-ldir", "-Xarchive", "--archive-options"),
    *("-split-compile", "--split-compile", "-cudart", "--cudart", "-diag-error", "--diag-error"),
}
# Beginnings of options without a value of their own, behind one dash or two.
_IGNORED = (
    *("Werror", "Xcudafe", "Xptxas", "allow-unsupported-compiler", "arch", "brief-diag"),
    *("ccbin", "code", "compiler-bindir", "compress-mode", "cudadevrt", "cudart"),
    *("default-stream", "device-int128", "diag", "disable-warnings", "dlto", "dopt", "ewp"),
    *("expt-", "extended-lambda", "extensible-whole-program", "extra-device-vectorization"),
    *("fmad", "forward", "ftz", "gen-opt-lto", "gencode", "generate-code"),
    *("generate-line-info", "gpu-arch", "jtd", "jump-table-density", "keep", "lineinfo"),
    *("m64", "maxrregcount", "minimal", "no-align-double", "no-compress", "no-device-link"),
    *("nodlink", "nvlink-options", "prec-", "ptxas-options", "reloc-ptx", "relocatable-ptx"),
    *("res-usage", "resource-usage", "restrict", "sm_", "source-in-ptx", "split-compile"),
    *("src-in-ptx", "static-global", "t=", "threads", "time", "use_fast_math"),
)
# Options without a value, and what they set of a command.
_FLAGS = {
    "--loom-checked": ("is_checked",),
    "--loom-races": ("is_checked", "finds_races"),
    **dict.fromkeys(("-c", "--compile"), ("compiles",)),
    **dict.fromkeys(("-dc", "--device-c"), ("compiles", "is_relocatable")),
    **dict.fromkeys(("-shared", "--shared"), ("links",)),
    **dict.fromkeys(("-lib", "--lib"), ("archives",)),
    **dict.fromkeys(("-dlink", "--device-link"), ("is_for_device",)),
    **dict.fromkeys(("-v", "--verbose"), ("is_verbose",)),
    **dict.fromkeys(
        ("-forward-unknown-to-host-compiler", "--forward-unknown-to-host-compiler"), ("forwards",)
    ),
}
_HOST = ("-Xcompiler", "--compiler-options", "-Xlinker", "--linker-options")
# Preprocessor's options.
_WITH_VALUE = (
    "-I",
    "-isystem",
    "-D",
    "-U",
    "-include",
    "-MF",
    "-MT",
    "-MQ",
    "-iquote",
    "-idirafter",
    "-L",
    "-l",
)

_COMPILE = (
    *("-O3", "-fPIC", "-w", "-fno-math-errno", "-fno-trapping-math", "-ffp-contract=fast"),
    # No file between the compiler and the assembler, which would stay where both are killed.
    "-pipe",
    # Kernels look at memory through pointers of other types.
    "-fno-strict-aliasing",
    # Kernels are this library's own, and may be part of the loop that calls them.
    "-fno-semantic-interposition",
    # What nvcc takes, as a name in a class that means something else there than around it.
    "-fpermissive",
    # Static variables of templates are each library's own.
    "-fno-gnu-unique",
    # A stack that is used up faults below it, and not in another one.
    "-fstack-clash-protection",
    # A division by zero goes on, by csrc/cuda_cpp/division.cpp: no compiler may take it for the kernel's end.
    "-fno-isolate-erroneous-paths-dereference",
)
_LATER_STANDARDS = ("20", "2a", "23", "2b", "26", "2c")
_CHECKED = (
    *("-DLOOM_CUDA_CHECKED=1", "-g1", "-gdwarf-4", "-fsanitize=bounds", "-fsanitize-recover=bounds"),
    *("-fsanitize=integer-divide-by-zero", "-fsanitize-recover=integer-divide-by-zero"),
)
# Each access calls a function, and no stack or variable gets a zone of its own.
_ACCESSES = (
    *("-fsanitize=kernel-address", "-fsanitize-recover=kernel-address"),
    *("--param", "asan-stack=0", "--param", "asan-globals=0"),
    *("--param", "asan-instrumentation-with-call-threshold=0"),
)
# Each read and write does, also where both are to one place; so do atomics, and ints that overflow.
_RACES = (
    *("-DLOOM_CUDA_RACES=1", "-fsanitize=thread"),
    *("-fsanitize=signed-integer-overflow", "-fsanitize-recover=signed-integer-overflow"),
)


@dataclass
class Command:
    """What nvcc was asked for.

    Attributes:
        toolkit: the folder of :mod:`~torch_loom.kernels.cuda_cpp.toolkit`, for its libraries.
        sources: files to compile, or to link.
        output: where the result goes.
        compiles, links: whether objects, or a shared library, are to be made.
        archives: whether a static library of objects is.
        is_for_device: whether nothing is but the object that links device code, which here needs none.
        language: of all sources, by the name that `-x` has for it; None if their names say it.
        is_verbose: whether the steps are printed.
        forwards: whether options that are not known are the host compiler's.
        preprocess: options of the preprocessor.
        compile: options of the compiler.
        link: options of the linker.
        is_checked, finds_races: whether accesses are checked; whether races and overflows are looked for.
        is_relocatable: whether variables of the device are known to other sources.
    """

    toolkit: str | None = None
    sources: list[str] = field(default_factory=list)
    output: str | None = None
    compiles: bool = False
    links: bool = False
    archives: bool = False
    is_for_device: bool = False
    language: str | None = None
    is_verbose: bool = False
    forwards: bool = False
    preprocess: list[str] = field(default_factory=list)
    compile: list[str] = field(default_factory=list)
    link: list[str] = field(default_factory=list)
    is_checked: bool = False
    finds_races: bool = False
    is_relocatable: bool = False


class CompilerError(Exception):
    """The compiler refuses a source, by the messages that are this error's text."""

    def __init__(self, messages: str, status: int) -> None:
        super().__init__(messages)
        self.status = status


def parse(arguments: Sequence[str]) -> Command:
    """Return what nvcc's options ask for.

    Raises:
        ValueError: an option is not known, or lacks its value.
    """
    command = Command()
    words = iter(_expanded(arguments))
    for word in words:
        _take(command, word, words)
    return command


def _expanded(arguments: Sequence[str], reading: tuple[Path, ...] = ()) -> Iterator[str]:
    words = iter(arguments)
    for word in words:
        name, equals, value = word.partition("=")
        if name in ("-optf", "--options-file"):
            file = value or next(words, None)
            if file is None:
                raise ValueError(f"the option {word} needs a value")
            path = Path(file).resolve()
            if path in reading:
                raise ValueError(f"the file of options {file} names itself")
            given = path.read_text(encoding="utf-8", errors="surrogateescape")
            yield from _expanded(shlex.split(given), (*reading, path))
            continue
        if equals and name in _HOST:
            yield from (name, value)
        else:
            yield word


def _take(command: Command, word: str, words: Iterator[str]) -> None:
    def value() -> str:
        following = next(words, None)
        if following is None:
            raise ValueError(f"the option {word} needs a value")
        return following

    if word in _FLAGS:
        for name in _FLAGS[word]:
            setattr(command, name, True)
    elif word.startswith("--loom-toolkit="):
        command.toolkit = word.partition("=")[2]
    elif word in ("-o", "--output-file"):
        command.output = value()
    elif word.partition("=")[0] in ("-rdc", "--relocatable-device-code"):
        command.is_relocatable = (word.partition("=")[2] or value()) == "true"
    elif word in ("-x", "--x"):
        command.language = value()
    elif word in ("-rdynamic", "-s"):
        command.link.append(word)
    elif word in _HOST:
        given = [option for option in value().strip("'\"").split(",") if option]
        (command.link if "inker" in word else command.compile).extend(given)
    elif word in _IGNORED_WITH_VALUE:
        value()
    elif word in ("-MD", "-MMD", "-MP"):
        command.preprocess.append(word)
    elif word in _WITH_VALUE:
        given = [word, value()]
        (command.link if word in ("-L", "-l") else command.preprocess).extend(given)
    elif word.startswith(("-I", "-isystem", "-D", "-U")):
        command.preprocess.append(word)
    elif word.startswith(("-L", "-l")) and not word.startswith("-lineinfo"):
        command.link.append(word)
    elif word in ("-std", "--std"):
        command.compile.append(_standard(value()))
    elif word.startswith(("-std=", "--std=")):
        command.compile.append(_standard(word.partition("=")[2]))
    elif word in ("-O", "-O0", "-O1", "-O2", "-O3", "-g", "-G", "--debug", "--device-debug", "-pthread"):
        command.compile.append({"-G": "-g", "--debug": "-g", "--device-debug": "-g"}.get(word, word))
    elif word == "-w" or (word[:1] == "-" and word.lstrip("-").startswith(_IGNORED)):
        pass
    elif word.startswith("-" if command.forwards else ("-f", "-m", "-W", "-g")):
        command.compile.append(word)
    elif word.startswith("-"):
        raise ValueError(f"the option {word} is not known to torch-loom's nvcc")
    else:
        command.sources.append(word)


def _standard(name: str) -> str:
    """Return the option for the standard of C++ that is asked for; the headers need that of 2020."""
    return f"-std={name if name[-2:] in _LATER_STANDARDS else 'c++20'}"


@cache
def machine_options() -> tuple[str, ...]:
    """Options for what this machine has: conversions of half precision, fused multiply and add."""
    with contextlib.suppress(OSError):
        flags = (
            Path("/proc/cpuinfo")
            .read_text(encoding="utf-8", errors="replace")
            .partition("flags")[2]
            .split("\n")[0]
        )
        if {"avx2", "fma", "f16c", "bmi2"} <= set(flags.split()):
            return ("-march=x86-64-v3",)
    return ()


def compile_options() -> tuple[str, ...]:
    """Return what each source is compiled with."""
    return (*_COMPILE, *machine_options())


def checks(is_checked: bool, finds_races: bool) -> tuple[str, ...]:
    """Return what a source is compiled with for its checks."""
    if not is_checked and not finds_races:
        return ()
    return (*_CHECKED, *(_RACES if finds_races else _ACCESSES))


def compiler() -> str:
    """Return the command of the C++ compiler: CXX, or TORCH_LOOM_COMPILER."""
    return config.cxx() or config.value(settings.COMPILER)


def compile_source(source: str, output: Path, command: Command) -> None:
    """Compile a source of CUDA C++ to an object.

    Raises:
        RefusedError: it needs what there is not here.
        CompilerError, subprocess.CalledProcessError: the compiler or its preprocessor refuses it.
    """
    own = [*compile_options(), *checks(command.is_checked, command.finds_races)]
    if command.is_relocatable:
        own.append("-DLOOM_CUDA_RELOCATABLE=1")
    options = [*own, *command.compile]
    if not any(option.startswith("-std=") for option in options):
        options.append("-std=c++20")
    cxx = compiler().split()
    with tempfile.TemporaryDirectory(prefix="loom-nvcc-") as folder:
        text = Path(folder) / "preprocessed.ii"
        includes = [*command.preprocess, "-isystem", str(INCLUDE)]
        if "-MD" in includes and "-MT" not in includes:
            includes += ["-MT", str(output)]
        # Before what the program includes by options.
        # What a source depends on is asked for: a precompiled header does not say what it was made of.
        is_read = {"-MD", "-MMD"} & set(command.preprocess)
        front = prelude.READ if is_read else prelude.included(cxx, options)
        _run([*cxx, "-E", "-x", "c++", *front, *options, *includes, source, "-o", str(text)])
        preprocessed = text.read_text(encoding="utf-8", errors="surrogateescape")
        refused: list[RefusedError] = []
        rewritten = rewrite(preprocessed, is_relocatable=command.is_relocatable, refused=refused)
        kept = [option for option in options if not option.startswith("-D")]
        compiles = [*cxx, "-c", "-x", "c++-cpp-output", "-fpreprocessed", *kept, str(text), "-o", str(output)]

        def attempt(code: str) -> CompilerError | None:
            text.write_text(code, encoding="utf-8", errors="surrogateescape")
            color = ["-fdiagnostics-color=always"] if sys.stderr.isatty() else []
            done = subprocess.run([*compiles, *color], stderr=subprocess.PIPE, text=True, errors="replace")
            return CompilerError(done.stderr, done.returncode) if done.returncode else None

        compile_rewritten(rewritten, refused, attempt)
        if not command.is_relocatable:
            keep_own_functions(output)


def _run(command: list[str]) -> None:
    subprocess.run(command, check=True)


def main(arguments: Sequence[str]) -> int:
    """Do what nvcc would do, and return the status to exit with."""
    if {"-V", "--version"} & set(arguments):
        version = config.cuda_version("13.0") or "13.0"
        # CMake knows nvcc by this name.
        print(
            "torch-loom's, which compiles for the host, for nvcc: NVIDIA (R) Cuda compiler driver\n"
            f"Cuda compilation tools, release {version}, V{version}.0"
        )
        return 0
    try:
        command = parse(arguments)
        if command.is_verbose:
            _show(command)
        if not command.sources:
            raise ValueError("no source is given")
        if command.is_for_device:
            _compile_nothing(Path(command.output or "a_dlink.o"))
        elif command.compiles:
            for source in command.sources:
                _compile(source, Path(command.output or Path(source).with_suffix(".o").name), command)
        else:
            _link(command)
    except (RefusedError, ValueError) as error:
        print(error if isinstance(error, RefusedError) else f"nvcc: {error}", file=sys.stderr)
        return 2
    except CompilerError as error:
        sys.stderr.write(str(error))
        return error.status
    except subprocess.CalledProcessError as error:
        return error.returncode or 1
    except FileNotFoundError as error:
        if error.filename in TOOLS:
            print(f"nvcc: {error.filename} cannot be run ({error}): install binutils", file=sys.stderr)
            return 2
        if error.filename in arguments:
            print(f"nvcc: {error.filename}: {error.strerror}", file=sys.stderr)
            return 2
        print(
            f"nvcc: the C++ compiler {compiler()!r} cannot be run ({error}): install one, or name it in CXX",
            file=sys.stderr,
        )
        return 2
    return 0


def _show(command: Command) -> None:
    """Print where the toolkit is and how it links, in the lines of nvcc that CMake reads."""
    home = command.toolkit or str(INCLUDE.parent)
    libraries = f'-L"{home}/lib64"'
    link = f"{home}/bin/nvcc {' '.join(command.sources)} {libraries} -lcudadevrt -lcudart_static"
    lines = (
        *(f"TOP={home}", f"PATH={home}/bin:", f'INCLUDES="-I{home}/include" ', f"LIBRARIES= {libraries}"),
        # The architecture that CMake takes where a project names none: the prelude's __CUDA_ARCH__.
        *("g++ -arch compute_80", link),
    )
    print("".join(f"#$ {line}\n" for line in lines), end="", file=sys.stderr)


def _compile_nothing(output: Path) -> None:
    _run([*compiler().split(), "-fPIC", "-c", "-x", "c++", os.devnull, "-o", str(output)])


def _compile(source: str, output: Path, command: Command) -> None:
    if command.language == "cu" or (command.language is None and Path(source).suffix in _CUDA_SUFFIXES):
        compile_source(source, output, command)
        return
    options = ["-fPIC", *command.compile, *command.preprocess, "-isystem", str(INCLUDE)]
    _run([*compiler().split(), "-c", *options, source, "-o", str(output)])


def _link(command: Command) -> None:
    if not command.links and not command.archives and command.toolkit is None:
        raise ValueError(
            "only libraries are made where torch-loom's toolkit is not known: call its bin/nvcc "
            "(torch.utils.cpp_extension.CUDA_HOME under the name cuda), or build with -shared"
        )
    with tempfile.TemporaryDirectory(prefix="loom-nvcc-") as folder:
        inputs = []
        for number, source in enumerate(command.sources):
            inputs.append(source)
            if command.language or Path(source).suffix in (*_CUDA_SUFFIXES, *_HOST_SUFFIXES):
                inputs[-1] = str(Path(folder) / f"{number}.o")
                _compile(source, Path(inputs[-1]), command)
        if command.archives:
            archive = Path(command.output or "a.a")
            archive.unlink(missing_ok=True)
            _run(["ar", "rcs", str(archive), *inputs])
            return
        runtime = [] if command.toolkit is None else [f"-L{command.toolkit}/lib64", "-lcudart"]
        output = Path(command.output or "a.out")
        library = output if command.links else Path(folder) / "program.so"
        options = ["-shared", *command.compile, *command.link, *runtime, "-o", str(library)]
        if not command.links:
            options.append("-Wl,-z,defs")  # a program lacks nothing
        _run([*compiler().split(), *inputs, *options])
        if not command.links:
            program.write(library, output)


def _end(number: int, frame: object) -> None:
    # subprocess ends what it has started, but not where the signal comes meanwhile, nor what that started.
    for process in reversed(_started_by(os.getpid(), _parents())):
        with contextlib.suppress(OSError):
            os.kill(process, signal.SIGKILL)
    raise SystemExit(128 + number)


def _parents() -> dict[int, int]:
    """Return the parent of each process."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            # Behind the name, which may have any sign: the state and the parent.
            found[int(stat.parent.name)] = int(stat.read_bytes().rpartition(b")")[2].split()[1])
    return found


def _started_by(process: int, parents: dict[int, int]) -> list[int]:
    """Return the processes below a process, each behind the one that has started it."""
    started: list[int] = []
    for child, parent in parents.items():
        if parent == process:
            started += [child, *_started_by(child, parents)]
    return started


if __name__ == "__main__":
    # A build that is stopped leaves no folder behind, and its compiler ends with it.
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        if signal.getsignal(number) is not signal.SIG_IGN:
            signal.signal(number, _end)
    raise SystemExit(main(sys.argv[1:]))
