"""`docs/api_parity.md`, torch-rbln's part: the public names of the vendor's package, and what each is here.

``python -m tools.parity.rbln WHEEL`` writes the list of names out of a wheel (``pip download
torch-rbln==0.12.0 --no-deps``), a folder of the package or, without an argument, the installed package, and
prints what has changed since the last list. Nothing of the package is imported.
"""

from __future__ import annotations

import argparse
import ast
import importlib.util
import inspect
import sys
import zipfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from inspect import Parameter
from pathlib import Path
from typing import Any

from tools.blocks import markdown_table
from tools.parity import signatures
from tools.parity.exercised import MarkedTest

PACKAGE = "torch_rbln"
PREFIX = "torch.rbln."
FILE = Path(__file__).with_name("rbln_names.tsv")
MAX_TESTS = 2
_HEADINGS = ("module", "name", "kind", "parameters")
_VERSION = "# torch-rbln "

# Names that say why they are not here: the exception is typed, and a test asserts it.
NOT_APPLICABLE = {
    "Event.elapsed_time": "raises in the original, too: RBLN's events keep no time; `torch.loom.Event` does",
}
# Names that are called otherwise here, and why.
ACCEPTED: dict[str, str] = {}


@dataclass(frozen=True)
class Name:
    """A public name of the package.

    Attributes:
        module: where it is declared, such as ``torch_rbln.memory``.
        name: it, in ``torch.rbln``; with a dot, a method or property of a class.
        kind: function, class, method, property, object, or deferred, which the package gives from elsewhere.
        parameters: what a call takes, as in the source, without annotations.
    """

    module: str
    name: str
    kind: str
    parameters: str

    @property
    def full(self) -> str:
        return PREFIX + self.name


def read(source: Path | None) -> tuple[str, list[Name]]:
    """Returns the version and the public names of a package: a wheel, its folder, or the installed one.

    Raises:
        SystemExit: there is no such package.
    """
    files, version = _files(source)
    names = [name for path, text in sorted(files.items()) for name in _names(_module(path), text)]
    return version, sorted(set(names), key=lambda name: (name.module, name.name.lower(), name.name))


def _files(source: Path | None) -> tuple[Mapping[str, str], str]:
    if source is not None and source.suffix == ".whl":
        with zipfile.ZipFile(source) as wheel:
            python = [name for name in wheel.namelist() if name.endswith(".py")]
            return {name: wheel.read(name).decode() for name in python}, source.name.split("-")[1]
    if source is None:
        spec = importlib.util.find_spec(PACKAGE)
        if spec is None or spec.origin is None:
            raise SystemExit(f"{PACKAGE} is not installed: give a wheel, or a folder that has it")
        source = Path(spec.origin).parents[1]
    if not (source / PACKAGE / "__init__.py").is_file():
        raise SystemExit(f"{source} has no folder {PACKAGE}")
    paths = (source / PACKAGE).rglob("*.py")
    found = {path.relative_to(source).as_posix(): path.read_text(encoding="utf-8") for path in paths}
    known = sorted(source.glob(f"{PACKAGE}-*.dist-info"))
    return found, known[0].name.split("-")[1].removesuffix(".dist") if known else "of a folder"


def _module(path: str) -> str:
    return path.removesuffix(".py").replace("/", ".").removesuffix(".__init__")


def _names(module: str, text: str) -> Iterator[Name]:
    if "._" in module:
        return
    tree = ast.parse(text)
    declared = {node.name: node for node in tree.body if isinstance(node, (ast.FunctionDef, ast.ClassDef))}
    aliases = {
        target.id: node.value.id
        for node in tree.body
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Name)
        for target in node.targets
        if isinstance(target, ast.Name)
    }
    for name in _public(tree):
        node = declared.get(aliases.get(name, name))
        if isinstance(node, ast.ClassDef):
            yield Name(module, name, "class", "")
            if name not in aliases:
                yield from _members(module, node)
        elif node is not None:
            yield Name(module, name, "function", _parameters(node))
        else:
            yield Name(module, name, "deferred", "")


def _public(tree: ast.Module) -> list[str]:
    for node in tree.body:
        if isinstance(node, ast.Assign) and any(_is_named(target, "__all__") for target in node.targets):
            return [name for name in ast.literal_eval(node.value) if not name.startswith("_")]
    return []


def _is_named(node: ast.expr, name: str) -> bool:
    return isinstance(node, ast.Name) and node.id == name


def _members(module: str, owner: ast.ClassDef) -> Iterator[Name]:
    for node in owner.body:
        if isinstance(node, ast.FunctionDef) and not node.name.startswith("_"):
            decorators = {each.id for each in node.decorator_list if isinstance(each, ast.Name)}
            is_property = "property" in decorators
            skipped = 0 if "staticmethod" in decorators else 1
            text = "" if is_property else _parameters(node, skipped)
            kind = "property" if is_property else "method"
            yield Name(module, f"{owner.name}.{node.name}", kind, text)


def _parameters(node: ast.FunctionDef, skipped: int = 0) -> str:
    arguments = node.args
    arguments.args = arguments.args[skipped:]
    for each in [*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs]:
        each.annotation = None
    for other in (arguments.vararg, arguments.kwarg):
        if other is not None:
            other.annotation = None
    return ast.unparse(arguments)


def write(version: str, names: Sequence[Name]) -> None:
    """Writes the list."""
    rows = ["\t".join((name.module, name.name, name.kind, name.parameters)) for name in names]
    FILE.write_text("\n".join([f"{_VERSION}{version}", "\t".join(_HEADINGS), *rows]) + "\n", encoding="utf-8")


def listed() -> tuple[str, list[Name]]:
    """Returns the version and the names of the list."""
    first, _, *rows = FILE.read_text(encoding="utf-8").splitlines()
    return first.removeprefix(_VERSION), [Name(*row.split("\t")) for row in rows]


def changes(old: Sequence[Name], new: Sequence[Name]) -> list[str]:
    """Returns what differs between two lists: names that are gone, that came, or are called otherwise."""
    before, after = ({name.name: name for name in names} for names in (old, new))
    said = [f"- {name}" for name in sorted(before.keys() - after.keys())]
    said += [f"+ {name}({after[name].parameters})" for name in sorted(after.keys() - before.keys())]
    for name in sorted(before.keys() & after.keys()):
        if before[name].parameters != after[name].parameters:
            said.append(f"~ {name}({before[name].parameters}) is ({after[name].parameters})")
    return said


def found(name: Name) -> Any:
    """Returns what a name of the list is here.

    Raises:
        AttributeError: there is none.
    """
    from torch_loom import rbln

    value: Any = rbln
    for part in name.name.split("."):
        value = getattr(value, part)
    return value


def difference(name: Name) -> str | None:
    """Returns what would break a call written for the package, or None."""
    if name.kind not in ("function", "method"):
        return None
    ours = [
        parameter
        for parameter in inspect.signature(found(name)).parameters.values()
        if parameter.name != "self"
    ]
    wanted = list(inspect.signature(_function(name.parameters)).parameters.values())
    return signatures._difference(wanted, _renamed(ours, wanted))


def _function(parameters: str) -> Any:
    # Defaults are names and values of the package's: only that there are some matters.
    tree = ast.parse(f"lambda {parameters}: None", mode="eval")
    assert isinstance(tree.body, ast.Lambda)
    arguments = tree.body.args
    none = ast.Constant(None)
    arguments.defaults = [none] * len(arguments.defaults)
    arguments.kw_defaults = [default and none for default in arguments.kw_defaults]
    return eval(compile(ast.fix_missing_locations(tree), "<parameters>", "eval"))


def _renamed(ours: Sequence[Parameter], wanted: Sequence[Parameter]) -> list[Parameter]:
    """Takes a parameter that can be passed by place alone for the one at that place."""
    named = list(ours)
    for place, (mine, theirs) in enumerate(zip(ours, wanted, strict=False)):
        if mine.kind is Parameter.POSITIONAL_ONLY:
            named[place] = mine.replace(name=theirs.name)
    return named


def tests_of(name: Name, tests: Sequence[MarkedTest]) -> list[MarkedTest]:
    """Returns the tests that exercise a name, or under CUDA's spelling the same one."""
    spellings = {name.full, f"torch.cuda.{name.name}"}
    own = [test for test in tests if spellings & set(test.names)]
    return sorted(own, key=lambda test: not test.path.startswith("rbln"))


def problems(tests: Sequence[MarkedTest]) -> list[str]:
    """Returns names that are missing, called otherwise or without a test, and tests that name none."""
    _, names = listed()
    said = []
    for name in names:
        try:
            found(name)
        except AttributeError:
            said.append(f"{name.full} does not exist")
            continue
        if name.name not in ACCEPTED and (differs := difference(name)) is not None:
            said.append(f"{name.full} is called otherwise than torch-rbln's: {differs}")
        if not tests_of(name, tests):
            said.append(f"no test exercises {name.full}")
    known = {name.full: name.name.rpartition(".")[2] for name in names}
    for test in tests:
        for full in test.names:
            if full.startswith(PREFIX) and full not in known:
                said.append(f"{test.id} exercises {full}, which is not in {FILE.name}")
            elif full in known and known[full] not in test.words:
                said.append(f"{test.id} says that it exercises {full}, but does not use it")
    return said


def counted(tests: Sequence[MarkedTest] | None) -> list[str]:
    """Returns the row of the list for the table of lists; without tests, without their column."""
    version, names = listed()
    there = [name for name in names if _is_found(name)]
    refused = [name for name in there if name.name in NOT_APPLICABLE]
    row = [
        f"torch-rbln {version}",
        f"{len(there)} of {len(names)}",
        str(len(there) - len(refused)),
        str(len(refused)),
    ]
    return row if tests is None else [*row, f"{sum(bool(tests_of(n, tests)) for n in names)} of {len(names)}"]


def _is_found(name: Name) -> bool:
    try:
        found(name)
    except AttributeError:
        return False
    return True


def section(tests: Sequence[MarkedTest]) -> str:
    """Returns the part of the page on the package."""
    version, names = listed()
    rows = []
    for name in names:
        own = tests_of(name, tests)[:MAX_TESTS]
        links = "<br>".join(f"[{test.path}::{test.function}](../tests/{test.path})" for test in own)
        state = "implemented" if _is_found(name) else "missing"
        if name.name in NOT_APPLICABLE:
            state = f"not applicable: {NOT_APPLICABLE[name.name]}"
        rows.append([f"`{name.name}`", f"`{name.module}`", state, links])
    note = (
        "Under the device name rbln, `torch.rbln`. The list is written out of the package's wheel by "
        "`python -m tools.parity.rbln WHEEL`, which prints what has changed."
    )
    table = markdown_table(["name", "declared in", "state", "exercised by"], rows)
    return f"## torch.rbln, of torch-rbln {version}\n\n{note}\n\n{table}"


def main(arguments: Sequence[str] | None = None) -> int:
    """Writes the list, or with ``--check`` only says what would change; returns the exit status."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("source", nargs="?", type=Path, help="a wheel, or the folder that has the package")
    parser.add_argument("--check", action="store_true", help="write nothing; status 1 if the list differs")
    options = parser.parse_args(arguments)
    version, names = read(options.source)
    before, old = listed() if FILE.exists() else ("nothing", [])
    said = changes(old, names)
    print("\n".join([f"torch-rbln {before} -> {version}: {len(names)} names", *said]))
    if not options.check:
        write(version, names)
    return int(bool(said)) if options.check else 0


if __name__ == "__main__":
    sys.exit(main())
