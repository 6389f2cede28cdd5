"""Layers know what is below them and nothing above: design.md section 1, checked in the sources."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "torch_loom"

# Headers in angle brackets that are neither C++'s nor the operating system's.
TORCH_HEADER = re.compile(r"^(torch|ATen|c10|caffe2|aten)\b|^(Python\.h|pybind11)")
# The rooms of csrc, lowest first: a room may include itself and those named.
CPP_LAYERS = {
    "util": set(),
    "numerics": {"numerics/tensix", "numerics/tensor_core"},
    "numerics/tensix": {"numerics", "util"},
    "numerics/tensor_core": {"util"},
    "random": set(),
    "cuda_cpp": {"loom_cuda", "util"},  # loom_cuda: headers of the package, for kernels
    "kernel_checks": set(),
    "telemetry": {"driver", "util"},
    "nvml": {"telemetry", "util"},
    "driver": set(),
    "driver/host": {"driver", "util"},
    # A driver is known by its contract alone: nothing above includes driver/host.
    "runtime": {"driver", "runtime/ipc", "runtime/memory", "util"},
    "runtime/ipc": {"driver", "runtime", "runtime/memory", "telemetry", "util"},
    "runtime/memory": {"driver", "runtime", "runtime/ipc", "util"},
    "testing": {"driver", "runtime", "runtime/memory", "telemetry", "util"},
}
# csrc/torch in order. Hooks and the profiler do not know kernels; rooms within their room do. All may include
# what is outside csrc/torch.
TORCH_ROOMS = [
    *("core", "core/python", "engine", "random", "numerics", "cuda", "cuda/values", "ops", "memory", "loans"),
    *("inference", "dispatch", "kernels", "kernels/attention", "kernels/autocast", "kernels/semi_structured"),
    *("hooks", "profiler", "launch", "launch/blas", "bindings"),
]
# The backend of torch.distributed stands on csrc/torch; bindings.h declares what it adds to the module.
CPP_LAYERS["distributed"] = {
    "torch/core",
    "torch/loans",
    "torch/memory",
    "torch/bindings",
    "torch/dispatch",
    "driver",
    "distributed/transport",
    "runtime",
    "runtime/ipc",
    "util",
}
CPP_LAYERS["distributed/transport"] = {"distributed", "driver", "telemetry", "util"}  # what an operation is
# From the op table: rows that others include.
CPP_LAYERS |= {"runtime/generated": set(), "torch/generated": set()}
BELOW_TORCH = {
    "numerics",
    "numerics/tensix",
    "numerics/tensor_core",
    "random",
    "cuda_cpp",
    "driver",
    "kernel_checks",
    "runtime",
    "runtime/ipc",
    "runtime/memory",
    "telemetry",
    "util",
}
for place, room in enumerate(TORCH_ROOMS):
    above = {*(name for name in TORCH_ROOMS if name.split("/")[0] == "kernels"), "hooks", "profiler"}
    unknown = set() if room.startswith("kernels/") or room in {"launch", "bindings"} else above
    below = set(TORCH_ROOMS[:place]) - unknown
    CPP_LAYERS[f"torch/{room}"] = {f"torch/{name}" for name in below} | BELOW_TORCH
# registry.cpp is the one file of its room that knows the drivers, and what they are given.
EXCEPT = {
    "csrc/driver/registry.cpp": {"driver/host", "util"},
    "csrc/torch/memory/memory_abi.cpp": {"../../../torch_loom/include"},  # what C code of a program sees
}

# The staircase, lowest first; a layer may import itself and what stands before it.
STAIRCASE = ["numerics", "ops", "chips", "image", "compiler", "pipeline"]
BESIDE = {"config", "errors", "late", "patches", "torch_version"}  # may be imported by all
# What tools and the facade may import is all of the staircase; neither imports the other.
ALLOWED = {
    "config": {"errors", "torch_version"},
    "as_cuda": {"config"},
    "errors": set(),
    "late": set(),
    "torch_version": set(),
    "patches": {"_C", "config"},
    "_register": {
        *("_C", "chips", "compiler", "cuda", "cuda.names", "device", "distributed", "kernels", "numerics"),
        "rbln",
    }
    | BESIDE,
    "cuda": {"_C", "cuda.names", "device", "kernels", "nvml"} | BESIDE,
    "cuda.names": {"_C"} | BESIDE,
    "rbln": {"_C", "compiler", "device", "distributed"} | BESIDE,
    "device": {"_C", "cuda.names", "kernels", "ops"} | BESIDE,
    "kernels": {"_C", "chips", "ops"} | BESIDE,
    **{layer: {"_C", *STAIRCASE[:number]} | BESIDE for number, layer in enumerate(STAIRCASE)},
    "pybuda": {"_C", "device", *STAIRCASE} | BESIDE,
    "tools": {"_C", "_register", "device", "distributed", "kernels", "nvml", *STAIRCASE} | BESIDE,
    "nvml": {"chips"} | BESIDE,
    "distributed": {"_C", "chips", "device"} | BESIDE,
}

# The parts of torch_loom/device, lowest first; a part may import itself and what stands before it.
DEVICE_PARTS = [
    *("_core", "devices", "plan", "streams", "telemetry", "memory", "random", "amp", "ipc", "nvtx"),
    *("profiler", "graphs", "jiterator", "comm", "_explain", "sanitizer", "__init__"),
]
# Folders of the repository that are not in the wheel.
NOT_INSTALLED = {"benchmarks", "tests", "tools"}


def includes(path: Path) -> list[str]:
    text = path.read_text(encoding="utf-8")
    return re.findall(r'^\s*#\s*include\s*([<"][^>"]+)[>"]', text, re.MULTILINE)


def cpp_files() -> list[Path]:
    return [path for path in sorted((ROOT / "csrc").rglob("*")) if path.suffix in {".h", ".cpp", ".inc"}]


def layer_of(path: Path, root: Path) -> str:
    first, *others = path.relative_to(root).parts
    return "cuda.names" if [first, *others[:1]] == ["cuda", "names"] else first.removesuffix(".py")


def room_of(path: Path) -> str:
    return str(path.relative_to(ROOT / "csrc").parent)


def bad_includes(layer: str, found: Iterable[str], also: Iterable[str] = ()) -> list[str]:
    """Which of these includes a file of the C++ layer must not have."""
    rooms = CPP_LAYERS[layer] | {layer}
    allowed = rooms | {*also, f"{layer.split('/')[0]}/generated"}
    bad = []
    for include in found:
        name = include[1:]
        if include[0] == '"':
            bad += [name] if name.rpartition("/")[0] not in allowed else []
        elif not layer.startswith(("torch/", "testing", "distributed")):
            bad += [name] if TORCH_HEADER.match(name) else []
    return bad


def imported_names(source: str | ast.Module, package: list[str]) -> set[str]:
    """The dotted names that a module imports, at whatever depth; `package` is where it stands."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(source) if isinstance(source, str) else source):
        names: list[str] = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            base = package[: len(package) - node.level + 1] if node.level else []
            origin = ".".join([*base, *([node.module] if node.module else [])])
            names = [f"{origin}.{alias.name}" for alias in node.names]
        elif isinstance(node, ast.Call) and ast.unparse(node.func).endswith("import_module"):
            names = [arg.value for arg in node.args[:1] if isinstance(arg, ast.Constant)]
        found.update(names)
    return found


def without_hints(source: str) -> ast.Module:
    """The source without what is imported for annotations alone."""
    tree = ast.parse(source)
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test).endswith("TYPE_CHECKING"):
            node.body = []
    return tree


def import_graph(root: Path) -> dict[str, set[str]]:
    """Which modules each module of a package imports, at whatever depth; by dotted names.

    The import of a module runs the packages around it first, but for those that are running already.
    """
    files = {path.relative_to(root.parent).with_suffix(""): path for path in root.rglob("*.py")}
    modules = {".".join(name.parts).removesuffix(".__init__"): path for name, path in files.items()}
    graph: dict[str, set[str]] = {}
    for module, path in modules.items():
        package = list(path.relative_to(root.parent).parent.parts)
        found = graph[module] = set()
        for name in imported_names(without_hints(path.read_text(encoding="utf-8")), package):
            parts = name.split(".")
            prefixes = [".".join(parts[:end]) for end in range(len(parts), 0, -1)]
            known = [prefix for prefix in prefixes if prefix in modules]
            found.update(one for one in known if not f"{module}.".startswith(f"{one}."))
            # A name of the package itself, which its __init__ must have by then; extensions have no source.
            if known and known[0] != module and not f"{name}.".startswith(f"{root.name}._C."):
                found.add(known[0])
    return graph


def circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Which modules import one another, be it by way of others."""
    reached = {module: set(imported) for module, imported in graph.items()}
    for through in graph:
        for found in reached.values():
            if through in found:
                found |= reached[through]
    groups = {
        frozenset({module, *(one for one in found if module in reached[one])})
        for module, found in reached.items()
        if module in found
    }
    return sorted(sorted(group) for group in groups)


def parts_below(names: set[str], package: str) -> set[str]:
    """Which parts of a package these names belong to."""
    start = f"{package}."
    below = {name.removeprefix(start) for name in names if name.startswith(start)}
    return {"cuda.names" if f"{name}.".startswith("cuda.names.") else name.split(".")[0] for name in below}


@cache
def imports_of(path: Path) -> set[str]:
    package = ["torch_loom", *path.relative_to(PACKAGE).parent.parts]
    return imported_names(path.read_text(encoding="utf-8"), package)


@pytest.mark.parametrize("layer", CPP_LAYERS)
def test_cpp_includes(layer: str) -> None:
    files = [path for path in cpp_files() if room_of(path) == layer]
    assert files
    wrong = {}
    for path in files:
        name = str(path.relative_to(ROOT))
        if bad := bad_includes(layer, includes(path), EXCEPT.get(name, ())):
            wrong[name] = bad
    assert wrong == {}


@pytest.mark.parametrize("room", [*TORCH_ROOMS])
def test_a_room_has_at_most_25_files(room: str) -> None:
    files = [path for path in (ROOT / "csrc/torch" / room).iterdir() if path.is_file()]
    assert 0 < len(files) <= 25


@pytest.mark.long
def test_python_imports() -> None:
    wrong = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        layer = layer_of(path, PACKAGE)
        imported = parts_below(imports_of(path), "torch_loom")
        # Nobody knows compat, which may know all. The package's __init__ registers, and finds two names when
        # they are asked for.
        own = {"compat": imported, "__init__": {"_register", "compiler", "image"}}
        allowed = {**ALLOWED, **own}.get(layer, set()) | {layer}
        if imported - allowed:
            wrong[str(path.relative_to(ROOT))] = sorted(imported - allowed)
    assert wrong == {}


def test_parts_of_the_device_module() -> None:
    """The parts of torch.loom know one another in one direction."""
    wrong = {}
    for path in sorted((PACKAGE / "device").rglob("*.py")):
        place = DEVICE_PARTS.index(layer_of(path, PACKAGE / "device"))
        imported = parts_below(imports_of(path), "torch_loom.device")
        if above := imported - set(DEVICE_PARTS[: place + 1]):
            wrong[str(path.relative_to(ROOT))] = sorted(above)
    assert wrong == {}


@pytest.mark.long
def test_no_modules_import_one_another() -> None:
    assert circles(import_graph(PACKAGE)) == []


@pytest.mark.long
def test_what_is_installed_imports_nothing_that_is_not() -> None:
    for path in sorted(PACKAGE.rglob("*.py")):
        assert {name.split(".")[0] for name in imports_of(path)} & NOT_INSTALLED == set(), path


def test_every_folder_has_its_layer() -> None:
    """A new folder must be given its place here before it is used."""
    folders = {path.name for path in PACKAGE.iterdir() if path.is_dir() and any(path.glob("*.py"))}
    assert folders <= {*ALLOWED, "compat"}
    assert {room_of(path) for path in cpp_files()} == set(CPP_LAYERS)


# What names the CPU as the engine that it is for most drivers, or a kernel of its own.
ENGINES_NAME = re.compile(
    r"\bkCPU\b|DispatchKey::\w*CPU\b|CPUGenerator|CPUAllocator|_for_cpu|hasMKLDNN|mkldnn_\w+\("
)
# Where it is the host.
NAMES_THE_HOST = {
    "csrc/torch/core/generator.cpp": "a generator's state is a tensor of the host",
    "csrc/torch/inference/kernel_words.cpp": "a device without kernels asks those of the host what is wrong",
    "csrc/torch/kernels/factories.cpp": "a file is read on the host",
    "csrc/torch/memory/lazy.cpp": "unmaterialised tensors live in host memory",
    "csrc/torch/memory/lazy_fill.cpp": "and are filled there",
    "csrc/torch/profiler/host_data.cpp": "which tensors of the host hold data of a device",
}


def test_only_the_engines_room_knows_that_the_engine_is_the_cpu() -> None:
    """A driver over an accelerator has another engine: what to change then stands in one room."""
    found = set()
    for path in cpp_files():
        name = str(path.relative_to(ROOT))
        code = re.sub(r"//[^\n]*|\"(?:[^\"\\\n]|\\.)*\"", "", path.read_text(encoding="utf-8"))
        if name.startswith("csrc/torch/") and ENGINES_NAME.search(code):
            found.add(name)
    outside = {name for name in found if not name.startswith("csrc/torch/engine/")}
    assert outside == set(NAMES_THE_HOST)
    assert found - outside, "the engine's room does"


def test_driver_is_written_against_one_file() -> None:
    """What a driver needs, driver.h, includes nothing of ours but the errors and what activity is."""
    ours = {
        name: [include[1:] for include in includes(ROOT / f"csrc/driver/{name}.h") if include[0] == '"']
        for name in ("driver", "error", "activity")
    }
    assert ours == {"driver": ["driver/activity.h", "driver/error.h"], "error": [], "activity": []}


def test_the_check_of_includes() -> None:
    bad = ["<torch/torch.h", "<ATen/ATen.h", "<c10/util/Exception.h", '"runtime/runtime.h', '"torch/lend.h']
    assert bad_includes("driver", [*bad, "<vector", "<sys/mman.h", '"driver/error.h']) == [x[1:] for x in bad]
    assert bad_includes("runtime", bad) == [x[1:] for x in bad if x != '"runtime/runtime.h']
    assert bad_includes("torch/ops", ['"torch/core/device.h', '"torch/loans/lend.h', "<ATen/Tensor.h"]) == [
        "torch/loans/lend.h"
    ]


def test_the_check_of_imports() -> None:
    source = """
import torch_loom.ops.table
from torch_loom import config, _C
from torch_loom.chips import load
from .. import errors
from ..numerics import bfp
from . import sibling
def late():
    from torch_loom.compat import pybuda
    importlib.import_module("torch_loom.tools")
"""
    package = ["torch_loom", "device"]
    expected = {"ops", "config", "_C", "chips", "errors", "numerics", "device", "compat", "tools"}
    names = imported_names(source, package)
    assert parts_below(names, "torch_loom") == expected
    assert parts_below(names, "torch_loom.device") == {"sibling"}


def test_the_check_of_circles(tmp_path: Path) -> None:
    def graph(**sources: str) -> dict[str, set[str]]:
        root = tmp_path / "package"
        for name, source in {"__init__": "", "part__": "", **sources}.items():
            path = root / (name.replace("__", "/", 1) if name != "__init__" else name)
            path = path / "__init__" if name.endswith("part__") else path
            path.parent.mkdir(parents=True, exist_ok=True)
            path.with_suffix(".py").write_text(source, encoding="utf-8")
        return import_graph(root)

    straight = graph(
        a="from package import b, _C\nif TYPE_CHECKING:\n    from package.c import C",
        b="def late():\n    from package.part.d import D",
        c="import package.a",
        part__d="from package.part import e",
        part__e="import os",
    )
    assert straight["package.a"] == {"package.b"}
    assert straight["package.b"] == {"package.part", "package.part.d"}
    assert straight["package.part.d"] == {"package.part.e"}
    assert circles(straight) == []
    assert circles(graph(part__e="from .. import a")) == [
        ["package.a", "package.b", "package.part.d", "package.part.e"]
    ]
    by_package = graph(part__e="from package.part import NAME", part__="from package.part.e import NAME")
    assert circles(by_package) == [["package.part", "package.part.e"]]
