"""Builds the C++ extensions against the torch that is installed: `_C`, and `_C_testing` for the tests.

Beside them a library that needs neither PyTorch nor Python, NVML's.
"""

from __future__ import annotations

import importlib.util
import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable
from pathlib import Path
from types import ModuleType
from typing import NamedTuple

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

ROOT = Path(__file__).resolve().parent


def load_torch_version() -> ModuleType:
    """Reads the module by its path: importing its package would register the devices."""
    path = ROOT / "torch_loom" / "torch_version.py"
    spec = importlib.util.spec_from_file_location("_loom_torch_version", path)
    assert spec is not None
    assert spec.loader is not None
    module: ModuleType = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


torch_version = load_torch_version()
if refusal := torch_version.platform_refusal(torch_version.this_platform()):
    raise SystemExit(refusal)
# What was installed before must not be loaded: it may be broken, which is why this is built.
os.environ["TORCH_DEVICE_BACKEND_AUTOLOAD"] = "0"
try:
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths
except ModuleNotFoundError as error:
    raise SystemExit(
        "torch-loom is compiled against the torch that is installed, and there is none in this environment: "
        f"run `pip install torch=={'.'.join(map(str, torch_version.NEWEST))}.* ninja`, then "
        "`pip install --no-build-isolation .`"
    ) from error
TRIES_ANY_TORCH = os.environ.get(torch_version.ANY_TORCH) == "1"
if refusal := torch_version.refusal(str(torch.__version__), tries_any=TRIES_ANY_TORCH):
    raise SystemExit(refusal)

CSRC = ROOT / "csrc"
# Objects stay here between builds, through pip as well, so that touching one file compiles one file.
OUTPUT = ROOT / "build" / "temp"

# Folders of csrc that include no header of PyTorch.
PLAIN = ("util", "driver", "runtime", "numerics", "random", "nvml", "telemetry", "cuda_cpp", "kernel_checks")
# What CUDA C++ is compiled against, and the rooms of csrc that answer it.
CUDA_INCLUDE = ROOT / "torch_loom" / "kernels" / "cuda_cpp" / "include"
CUDA_ROOMS = ("cuda_cpp", "torch/launch", "torch/launch/blas")
# The name by which compiled extensions find the extension module in the process.
SONAME = "libtorch_loom.so"
# Only in a development build: bindings for the tests, and a driver in a library of its own.
TESTING = "testing"
# A library of its own, under the name by which programs look for NVIDIA's.
NVML = "nvml"
NVML_LIBRARY = "libnvidia-ml.so.1"
# With 1, each room is a unit: to edit one file again and again. The first build then takes longer.
IS_SEPARATE = os.environ.get("SEPARATE_OBJECTS") == "1"
# What is compiled once, by the flags: for files without PyTorch's headers, and for those with them. To write
# it costs as much as to read the headers, so it pays from the third unit on. GCC takes how much to optimise
# from it, whatever the flags of a file say: COLD would need one of its own, and is one unit.
PRECOMPILED = {"plain": "util/precompiled.h", "torch": "torch/core/precompiled.h"}
if IS_SEPARATE:
    PRECOMPILED["cold"] = "torch/core/precompiled.h"
# What a driver in a library of its own is compiled against: in the wheel, beside the package's other headers.
CONTRACT = ("driver/driver.h", "driver/activity.h", "driver/error.h")
MIRROR = ROOT / "tests" / "driver" / "mirror"
LOGGED = ROOT / "tests" / "driver" / "logged"
# Where optimising further buys nothing: what is not on the path of each op, and has no loop over values.
COLD = (
    "distributed",
    "torch/bindings",
    "torch/core/python",
    "torch/hooks",
    "torch/kernels/attention",
    "torch/kernels/autocast",
    "torch/kernels/semi_structured",
    "torch/numerics",
    "torch/profiler",
)
# Where each file has options or helpers of its own.
ALONE = ("numerics", "numerics/tensix", "numerics/tensor_core", "random")
# Headers, and templates that each use makes again, are most of what a file costs: a room is compiled as one
# unit, and these rooms with one another. Names in the anonymous namespaces of their files must then differ.
# The longest come first, since ninja begins with what comes first.
TOGETHER = (
    COLD,
    ("torch/kernels", "torch/ops"),
    ("torch/cuda", "torch/cuda/values", "torch/random", "distributed/transport"),
    ("torch/core", "torch/dispatch", "torch/engine", "torch/inference", "torch/loans", "torch/memory"),
    ("driver", "driver/host", "kernel_checks", "runtime/memory"),
    ("runtime", "runtime/ipc"),
    ("telemetry", "util"),  # linked into two libraries
)

COMPILE = [
    *("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-DNDEBUG"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter"),
]
# Without it, `at::parallel_for` of PyTorch's headers is a loop of one thread. The runtime is the one that
# torch brings, so nothing is linked. Clang calls LLVM's, which torch has not: what it builds is serial.
THREADS = "-fopenmp"
# GCC: the memory of a unit is freed when its compiler ends. Collecting it before would walk through all of
# the precompiled header, which costs a tenth of the time.
KEEP_MEMORY = ["--param", "ggc-min-expand=500", "--param", "ggc-min-heapsize=1048576"]


class Kind(NamedTuple):
    """What the files of a unit have in common."""

    flags: str  # the name of a ninja variable, and in PRECOMPILED
    knows_cuda: bool = False  # whether it includes what CUDA C++ is compiled against


class Unit(NamedTuple):
    """One run of the compiler."""

    source: Path
    object: Path
    kind: Kind


def rooms() -> list[str]:
    """Returns the folders of csrc that have files to compile, in the order in which they are."""
    together = [room for group in TOGETHER for room in group]
    found = {path.parent.relative_to(CSRC).as_posix() for path in CSRC.rglob("*.cpp")}
    if gone := sorted(set(together) - found):
        raise SystemExit(f"setup.py compiles rooms together that have no files: {', '.join(gone)}")
    return [*together, *sorted(found - set(together))]


def files_of(room: str) -> list[Path]:
    return sorted((CSRC / room).glob("*.cpp"))


def is_plain(room: str) -> bool:
    return room.split("/")[0] in PLAIN


def kind_of(room: str) -> Kind:
    flags = "plain" if is_plain(room) else "cold" if room in (*COLD, TESTING) else "torch"
    return Kind(flags, room in CUDA_ROOMS)


def plain_units(paths: Iterable[Path]) -> list[Unit]:
    """Each file alone."""
    return [Unit(path, OUTPUT / path.relative_to(ROOT).with_suffix(".o"), Kind("plain")) for path in paths]


def units_of(chosen: Iterable[str]) -> list[Unit]:
    """Returns what compiles some rooms, and writes for each unit the file that includes theirs."""
    units: list[Unit] = []
    alone: list[Unit] = []
    merged: dict[str, list[str]] = {}
    for room in chosen:
        if room in ALONE:
            alone += plain_units(files_of(room))
        else:
            merged.setdefault(unit_of(room), []).append(room)
    for name, together in merged.items():
        source = OUTPUT / "merged" / f"{name.replace('/', '_')}.cpp"
        files = [path.relative_to(CSRC).as_posix() for room in together for path in files_of(room)]
        write_if_changed(source, "".join(f'#include "{file}"\n' for file in files))
        (kind,) = {kind_of(room) for room in together}
        units.append(Unit(source, source.with_suffix(".o"), kind))
    return [*units, *alone]


def unit_of(room: str) -> str:
    """Returns the name of the unit that has a room: its first one's."""
    groups = () if IS_SEPARATE else TOGETHER
    return next((group[0] for group in groups if room in group), room)


def write_if_changed(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    if not path.exists() or path.read_text(encoding="utf-8") != text:
        path.write_text(text, encoding="utf-8")


def escape(path: Path | str) -> str:
    return str(path).replace("$", "$$").replace(" ", "$ ").replace(":", "$:")


class NinjaFile:
    """What ninja is told: compile these units, link these libraries."""

    def __init__(self) -> None:
        kineto = Path(torch.__file__).parent / "include" / "kineto"
        python = sysconfig.get_paths()["include"]
        # System headers: warnings in them are not ours.
        system = [f"-isystem {shlex.quote(str(path))}" for path in (*include_paths(), kineto, python)]
        compiler = os.environ.get("CXX", "g++")
        of_gcc = [] if "clang" in Path(compiler).name else [THREADS, *KEEP_MEMORY]
        common = [
            *COMPILE,
            *of_gcc,
            f"-I{shlex.quote(str(CSRC))}",
            *shlex.split(os.environ.get("CXXFLAGS", "")),
        ]
        with_torch = [
            *common,
            *system,
            "-DTORCH_API_INCLUDE_EXTENSION_H",
            # ATen's own headers then include the declarations of single ops, not those of all 3,000.
            "-DAT_PER_OPERATOR_HEADERS",
            # The version the extension was built against; it is compared with the running one at first use.
            f"-DLOOM_BUILT_TORCH_VERSION={shlex.quote(json_string(torch.__version__))}",
            *(["-DLOOM_TRIES_ANY_TORCH"] if TRIES_ANY_TORCH else []),
        ]
        self.headers = {name: OUTPUT / "precompiled" / f"{name}.h" for name in PRECOMPILED}
        libraries = [f"-L{shlex.quote(path)}" for path in library_paths()]
        self.lines = [
            "ninja_required_version = 1.5",
            f"cxx = {compiler}",
            f"plain = {' '.join(common)}",
            # The rooms that answer CUDA C++.
            f"cuda = -I{shlex.quote(str(CUDA_INCLUDE))}",
            f"torch = {' '.join(with_torch)}",
            "cold = $torch -O1",
            f"link = {' '.join(libraries)} -lc10 -ltorch_cpu -ltorch -ltorch_python",
            # Loaded before torch is, by tests that need none of it: where torch stands, beside or here.
            f"testing = $link -Wl,-rpath,'$$ORIGIN/../torch/lib':{shlex.quote(':'.join(library_paths()))}",
            "rule precompile",
            "  command = $cxx -MMD -MF $out.d $flags -x c++-header -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule compile",
            "  command = $cxx -MMD -MF $out.d $flags $include -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            "  command = $cxx -shared $in -o $out $flags",
        ]
        for name, header in self.headers.items():
            write_if_changed(header, f'#include "{PRECOMPILED[name]}"\n')
            self.lines += [f"build {escape(header)}.gch: precompile {escape(header)}", f"  flags = ${name}"]

    def compile(self, units: Iterable[Unit]) -> list[Path]:
        objects = []
        for unit in units:
            header = self.headers.get(unit.kind.flags)
            needs = f" | {escape(header)}.gch" if header else ""
            self.lines += [
                f"build {escape(unit.object)}: compile {escape(unit.source)}{needs}",
                f"  flags = ${unit.kind.flags}{' $cuda' if unit.kind.knows_cuda else ''}",
                f"  include = {f'-Winvalid-pch -include {escape(header)}' if header else ''}",
            ]
            objects.append(unit.object)
        return objects

    def link(self, library: Path, objects: Iterable[Path], flags: str = "$link") -> None:
        inputs = " ".join(escape(path) for path in objects)
        self.lines += [f"build {escape(library)}: link {inputs}", f"  flags = {flags}"]

    def run(self, *, verbose: bool) -> None:
        write_if_changed(OUTPUT / "build.ninja", "\n".join(self.lines) + "\n")
        flags = [*shlex.split(os.environ.get("NINJAFLAGS", "")), *(["-v"] if verbose else [])]
        command = [ninja(), *flags, "-C", str(OUTPUT)]
        if jobs := os.environ.get("MAX_JOBS"):
            command += ["-j", jobs]
        result = subprocess.run(command, check=False)
        if result.returncode != 0:
            raise SystemExit(f"compiling the extension failed: `{shlex.join(command)}` says why")


def json_string(text: str) -> str:
    return '"' + text + '"'


def ninja() -> str:
    try:
        from ninja import BIN_DIR  # the package of the build requirements
    except ModuleNotFoundError:
        found = shutil.which("ninja")
    else:
        found = str(Path(BIN_DIR) / "ninja")
    if found is None:
        raise SystemExit(
            "torch-loom's build needs ninja, which is not installed here: `pip install ninja`, then again"
        )
    return found


class Build(build_ext):
    """Compiles with ninja and a precompiled header, and records which torch the extension was built against.

    The record is read without loading the extension, which may not load under another torch.
    """

    def run(self) -> None:
        is_development = self.inplace or getattr(self, "editable_mode", False)
        file = NinjaFile()
        shared_rooms = ("telemetry", "util")
        apart = {*shared_rooms, NVML, TESTING}
        known = [room for room in rooms() if room not in apart]
        own = file.compile(units_of(room for room in known if not is_plain(room)))
        tests = file.compile(units_of([TESTING])) if is_development else []
        shared = file.compile(units_of(shared_rooms))
        plain = [*file.compile(units_of(room for room in known if is_plain(room))), *shared]
        library = Path(self.get_ext_fullpath("torch_loom._C")).resolve()
        built = [(library, [*own, *plain])]
        file.link(
            OUTPUT / NVML_LIBRARY,
            [*file.compile(units_of([NVML])), *shared],
            f"-s -pthread -Wl,-soname,{NVML_LIBRARY}",
        )
        if is_development:
            built.append((Path(self.get_ext_fullpath("torch_loom._C_testing")).resolve(), [*tests, *plain]))
            # It stays where ninja links it: what a chip team writes has no part in the package.
            mirror = file.compile(plain_units(sorted(MIRROR.glob("*.cpp"))))
            file.link(OUTPUT / "libloom_mirror.so", mirror, "-pthread")
            logged = file.compile(plain_units(sorted(LOGGED.glob("*.cpp"))))
            file.link(OUTPUT / "libloom_logged.so", [*logged, *plain], "-pthread")
        for path, objects in built:
            is_for_tests = path.name.startswith("_C_testing")
            own_link = f"$link -Wl,-soname,{SONAME}"
            file.link(OUTPUT / path.name, objects, "$testing" if is_for_tests else own_link)
        file.run(verbose=bool(self.verbose > 1))
        library.parent.mkdir(parents=True, exist_ok=True)
        for path, _ in built:
            install(OUTPUT / path.name, path)
        # Some programs look for the name without a version. A wheel has no links.
        for name in (NVML_LIBRARY, NVML_LIBRARY.removesuffix(".1")):
            install(OUTPUT / NVML_LIBRARY, library.with_name("nvml") / "lib" / name)
        for name in CONTRACT:
            text = (CSRC / name).read_text(encoding="utf-8")
            write_if_changed(library.with_name("include") / name, text)
        record = torch_version.record(str(torch.__version__), library.read_bytes())
        write_if_changed(library.with_name("_built_with.py"), record)


def install(source: Path, target: Path) -> None:
    """Puts a new library in the place of an old one, which a running process may have mapped."""
    if target.exists() and target.stat().st_mtime_ns == source.stat().st_mtime_ns:
        return
    target.parent.mkdir(parents=True, exist_ok=True)
    temporary = target.with_name(f".{target.name}.new")
    shutil.copy2(source, temporary)
    temporary.replace(target)


# Read when an interpreter starts: lets `import torch_rbln` be found before torch, under the device name rbln.
START_FILE = "torch_loom/compat/torch_loom_rbln.pth"
PACKAGES = os.path.relpath(sysconfig.get_path("purelib"), sysconfig.get_path("data"))

setup(
    data_files=[(PACKAGES, [START_FILE])],
    ext_modules=[Extension("torch_loom._C", [])],
    cmdclass={"build_ext": Build},
)
