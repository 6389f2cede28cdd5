"""Builds the C++ extensions against the torch that is installed: `_C`, and `_C_testing` for the tests."""

from __future__ import annotations

import os
import shlex
import shutil
import subprocess
import sysconfig
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

try:
    import torch
    from torch.utils.cpp_extension import include_paths, library_paths
except ModuleNotFoundError as error:
    raise SystemExit(
        "torch-loom is compiled against the torch that is installed, and there is none in this environment: "
        "run `pip install torch==2.13.0`, then `pip install --no-build-isolation .`"
    ) from error

ROOT = Path(__file__).resolve().parent
CSRC = ROOT / "csrc"
# Objects stay here between builds, through pip as well, so that touching one file compiles one file.
OUTPUT = ROOT / "build" / "temp"

# Folders of csrc that include no header of PyTorch.
PLAIN = ("util", "driver", "runtime")
# Only in a development build: bindings for the tests, and a driver in a library of its own.
TESTING = "testing"
CONTRACT = ("driver/driver.h", "driver/activity.h", "driver/error.h")
MIRROR = ROOT / "tests" / "driver" / "mirror"
LOGGED = ROOT / "tests" / "driver" / "logged"
# These files spend most of their compile time on pybind11, so several are compiled as one.
MERGED = "torch/bindings"
FILES_PER_MERGED = 5

COMPILE = [
    *("-std=c++20", "-O2", "-fPIC", "-fvisibility=hidden", "-DNDEBUG"),
    *("-Wall", "-Wextra", "-Wno-unused-parameter"),
]


@dataclass
class Unit:
    """One run of the compiler."""

    source: Path
    object: Path
    flags: str  # the name of a ninja variable
    precompiled: bool = False
    inputs: Sequence[Path] = field(default_factory=tuple)


def sources(*folders: str) -> list[Path]:
    return sorted(path for folder in folders for path in (CSRC / folder).rglob("*.cpp"))


def units_of(paths: Iterable[Path], flags: str, *, precompiled: bool = False) -> list[Unit]:
    return [
        Unit(path, OUTPUT / path.relative_to(ROOT).with_suffix(".o"), flags, precompiled) for path in paths
    ]


def merged_units() -> list[Unit]:
    """Groups the files of one folder, and writes for each group the file that includes them."""
    files = sources(MERGED)
    units = []
    for number, first in enumerate(range(0, len(files), FILES_PER_MERGED)):
        group = files[first : first + FILES_PER_MERGED]
        source = OUTPUT / "merged" / f"{MERGED.replace('/', '_')}_{number}.cpp"
        text = "".join(f'#include "{path.relative_to(CSRC)}"\n' for path in group)
        write_if_changed(source, text)
        units.append(Unit(source, source.with_suffix(".o"), "bindings", precompiled=True))
    return units


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
        common = [*COMPILE, f"-I{shlex.quote(str(CSRC))}", *shlex.split(os.environ.get("CXXFLAGS", ""))]
        with_torch = [
            *common,
            *system,
            "-DTORCH_API_INCLUDE_EXTENSION_H",
            # ATen's own headers then include the declarations of single ops, not those of all 3,000.
            "-DAT_PER_OPERATOR_HEADERS",
            # The version the extension was built against; it is compared with the running one at first use.
            f"-DLOOM_BUILT_TORCH_VERSION={shlex.quote(json_string(torch.__version__))}",
        ]
        self.header = OUTPUT / "precompiled" / "torch.h"
        libraries = [f"-L{shlex.quote(path)}" for path in library_paths()]
        self.lines = [
            "ninja_required_version = 1.5",
            f"cxx = {os.environ.get('CXX', 'g++')}",
            f"plain = {' '.join(common)}",
            f"torch = {' '.join(with_torch)}",
            # Bindings are called from Python, where optimising them further buys nothing.
            "bindings = $torch -O1",
            f"link = {' '.join(libraries)} -lc10 -ltorch_cpu -ltorch -ltorch_python",
            "rule precompile",
            "  command = $cxx -MMD -MF $out.d $flags -x c++-header -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule compile",
            "  command = $cxx -MMD -MF $out.d $flags $include -c $in -o $out",
            "  depfile = $out.d",
            "  deps = gcc",
            "rule link",
            "  command = $cxx -shared $in -o $out $link",
        ]
        write_if_changed(self.header, '#include "torch/core/precompiled.h"\n')
        self.lines += [
            f"build {escape(self.header)}.gch: precompile {escape(self.header)}",
            "  flags = $torch",
        ]

    def compile(self, units: Iterable[Unit]) -> list[Path]:
        objects = []
        for unit in units:
            waits = f" | {escape(self.header)}.gch" if unit.precompiled else ""
            self.lines += [
                f"build {escape(unit.object)}: compile {escape(unit.source)}{waits}",
                f"  flags = ${unit.flags}",
            ]
            if unit.precompiled:
                self.lines.append(f"  include = -Winvalid-pch -include {escape(self.header)}")
            objects.append(unit.object)
        return objects

    def link(self, library: Path, objects: Iterable[Path], *, with_torch: bool = True) -> None:
        inputs = " ".join(escape(path) for path in objects)
        self.lines.append(f"build {escape(library)}: link {inputs}")
        if not with_torch:
            self.lines.append("  link = -pthread")

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
        raise SystemExit("the build needs ninja: `pip install ninja`")
    return found


class Build(build_ext):
    """Compiles with ninja and a precompiled header, and records which torch the extension was built against.

    The record is read without loading the extension, which may not load under another torch.
    """

    def run(self) -> None:
        is_development = self.inplace or getattr(self, "editable_mode", False)
        file = NinjaFile()
        plain = file.compile(units_of(sources(*PLAIN), "plain"))
        glue = [
            path
            for path in sources(".")
            if path.relative_to(CSRC).parts[0] not in (*PLAIN, TESTING)
            and not path.is_relative_to(CSRC / MERGED)
        ]
        merged = file.compile(merged_units())
        own = file.compile(units_of(glue, "torch", precompiled=True))
        library = Path(self.get_ext_fullpath("torch_loom._C")).resolve()
        built = [(library, [*merged, *own, *plain])]
        if is_development:
            tests = file.compile(units_of(sources(TESTING), "bindings", precompiled=True))
            built.append((Path(self.get_ext_fullpath("torch_loom._C_testing")).resolve(), [*tests, *plain]))
            # It stays where ninja links it: what a chip team writes has no part in the package.
            mirror = file.compile(units_of(sorted(MIRROR.glob("*.cpp")), "plain"))
            file.link(OUTPUT / "libloom_mirror.so", mirror, with_torch=False)
            logged = file.compile(units_of(sorted(LOGGED.glob("*.cpp")), "plain"))
            file.link(OUTPUT / "libloom_logged.so", [*logged, *plain], with_torch=False)
        for path, objects in built:
            file.link(OUTPUT / path.name, objects)
        file.run(verbose=bool(self.verbose > 1))
        library.parent.mkdir(parents=True, exist_ok=True)
        for path, _ in built:
            install(OUTPUT / path.name, path)
        # What a driver in a library of its own is compiled against.
        for name in CONTRACT:
            text = (CSRC / name).read_text(encoding="utf-8")
            write_if_changed(library.with_name("include") / name, text)
        record = f'"""Written by setup.py."""\n\nTORCH_VERSION = "{torch.__version__}"\n'
        write_if_changed(library.with_name("_built_with.py"), record)


def install(source: Path, target: Path) -> None:
    """Puts a new library in the place of an old one, which a running process may have mapped."""
    if target.exists() and target.stat().st_mtime_ns == source.stat().st_mtime_ns:
        return
    temporary = target.with_name(f".{target.name}.new")
    shutil.copy2(source, temporary)
    temporary.replace(target)


setup(ext_modules=[Extension("torch_loom._C", [])], cmdclass={"build_ext": Build})
