"""What torch-loom replaces in other libraries is declared in torch_loom/patches, and replaced there alone."""

from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

from tools import patches
from torch_loom.patches.declared import Change

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "torch_loom"
UPSTREAM = (ROOT / patches.FILE).read_text(encoding="utf-8")
# Attributes of other libraries' objects that are the program's to set: no name of the library changes.
OURS = {
    "_register/fitness.py: setattr(sys.modules[package], name, module)": "the extension, in our own package",
    "_register/stand_in.py: setattr(torch, name, module)": "the device's module, as PyTorch sets it",
    "compat/pybuda.py: module.__spec__": "a module of ours, under the name pybuda, too",
    "cuda/exchange.py: _get_name.restype": "ctypes takes the types of a function so",
    "cuda/exchange.py: _get_name.argtypes": "the same",
    "cuda/exchange.py: _get_pointer.restype": "the same",
    "cuda/exchange.py: _get_pointer.argtypes": "the same",
    "tools/compile.py: sys.argv": "the arguments of the script that is run",
    "tools/plan.py: sys.argv": "the same",
    "tools/local_ranks.py: sys.argv": "the same",
    "tools/pytest_plugin/unskip.py: unittest.skipIf": "while files of tests are imported: which are left in",
    "tools/pytest_plugin/unskip.py: unittest.skipUnless": "the same",
    "tools/pytest_plugin/unskip.py: pytest.MarkDecorator.with_args": "the same, of marks with a condition",
}


def others(tree: ast.Module) -> set[str]:
    """The names in a module that are bound to other libraries, or to parts of these."""
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            found = [alias.asname or alias.name.split(".")[0] for alias in node.names]
            names.update(name for name in found if name != "torch_loom")
        elif isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] != "torch_loom":
            names.update(alias.asname or alias.name for alias in node.names if not node.level)
    while True:
        known = len(names)
        for target, value in bindings(tree):
            if is_part(value, names):
                stored = [node for node in ast.walk(target) if isinstance(node, ast.Name)]
                names.update(node.id for node in stored if isinstance(node.ctx, ast.Store))
        if len(names) == known:
            return names


def bindings(tree: ast.Module) -> list[tuple[ast.expr, ast.expr]]:
    """What is bound to what: by assignment, or by a loop over a tuple."""
    found: list[tuple[ast.expr, ast.expr]] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign):
            found += [(target, node.value) for target in node.targets]
        elif isinstance(node, ast.AnnAssign) and node.value is not None:
            found.append((node.target, node.value))
        elif isinstance(node, ast.For) and isinstance(node.iter, ast.Tuple):
            found += [(node.target, value) for value in node.iter.elts]
    return found


def is_part(value: ast.expr, names: set[str]) -> bool:
    """Whether it is an attribute, at whatever depth, of these names, or one of the interpreter's modules."""
    if ast.unparse(value).startswith("sys.modules["):
        return True
    if isinstance(value, ast.Call):
        function = ast.unparse(value.func)
        is_module = function.endswith("import_module") and "torch_loom" not in ast.unparse(value)
        is_attribute = function == "getattr" and is_part(value.args[0], names)
        return is_module or is_attribute
    if isinstance(value, ast.Attribute):
        return is_part(value.value, names)
    return isinstance(value, ast.Name) and value.id in names


def replacements(source: str) -> list[str]:
    """What of a module sets or deletes an attribute of another library."""
    tree = ast.parse(source)
    names = others(tree)
    targets: list[ast.expr] = []
    for node in ast.walk(tree):
        if isinstance(node, ast.Assign | ast.Delete):
            targets += node.targets
        elif isinstance(node, ast.AnnAssign | ast.AugAssign):
            targets.append(node.target)
    parts = [part for target in targets for part in getattr(target, "elts", [target])]
    set_directly = [
        part
        for part in parts
        if (isinstance(part, ast.Attribute) or "__dict__[" in ast.unparse(part))
        and is_part(part.value, names)
    ]
    calls = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and sets_attribute(node)]
    return [ast.unparse(found) for found in [*set_directly, *(c for c in calls if is_part(c.args[0], names))]]


def sets_attribute(node: ast.AST) -> bool:
    return isinstance(node, ast.Call) and ast.unparse(node.func) in {"setattr", "delattr"}


@pytest.mark.long
def test_other_libraries_are_changed_in_one_package() -> None:
    """Names that answer for CUDA, and those of dry runs, go through ``Purpose.put``, which is in it."""
    found = set()
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE)
        if name.parts[0] != "patches":
            found |= {f"{name}: {line}" for line in replacements(path.read_text(encoding="utf-8"))}
    assert found == set(OURS)


def test_in_the_package_one_file_sets_attributes() -> None:
    for path in sorted((PACKAGE / "patches").glob("*.py")):
        source = path.read_text(encoding="utf-8")
        assert path.name == "declared.py" or replacements(source) == [], path


@pytest.mark.parametrize("change", patches.changes(), ids=lambda change: change.replaces[0])
def test_each_says_why(change: Change) -> None:
    assert change.reason.endswith(".")
    assert all(re.fullmatch(r"[\w.]+:[\w.{}*]+", name) for name in change.replaces)
    assert re.fullmatch(r"([\w-]+/[\w-]+#\d+(, )?)*", change.issue)
    assert not change.shown_under or f"\n## {change.shown_under}\n" in UPSTREAM


def test_the_check_of_replacements() -> None:
    source = """
import torch, os
from torch._inductor import lowering
patched: Any = lowering
torch.load = load
patched.is_gpu = torch.empty(1).is_gpu = is_gpu
os.stat, kept = stat, os.stat
for owner in (torch._C, torch.cuda):
    setattr(owner, name, 1)
for name in ("a", "b"):
    module = sys.modules["torch.nn"]
    module.functional = name
torch.backends.cudnn.__dict__["version"] = version
del getattr(torch, "version").cuda
table = lowering.lowerings
table["op"] = lower
result = torch.empty(1)
result.mark = 1
self.torch = torch
setattr(self, "x", torch)
"""
    assert replacements(source) == [
        "torch.load",
        "patched.is_gpu",
        "os.stat",
        "torch.backends.cudnn.__dict__['version']",
        "getattr(torch, 'version').cuda",
        "module.functional",
        "setattr(owner, name, 1)",
    ]
