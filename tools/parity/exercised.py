"""Which test exercises which name: read from the markers `exercises` in the tests, without running them."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

_MARKER = "exercises"
_WORD = re.compile(r"[A-Za-z_]\w*")
_ASSERTING = re.compile(r"assert_|check_|raises$|warns$|fail$")
_ASSERTING_TEXT = re.compile(r"\bassert(?:_\w+)?\b|\braises\(")


@dataclass(frozen=True)
class MarkedTest:
    """A test with a marker.

    Attributes:
        path: its file, relative to the folder of the tests.
        function: its name, with the class in front if it is in one.
        names: what the marker says that it exercises.
        words: the identifiers that it uses, those in the programs that it runs included.
        asserts: whether it asserts anything.
    """

    path: str
    function: str
    names: tuple[str, ...]
    words: frozenset[str]
    asserts: bool

    @property
    def id(self) -> str:
        return f"{self.path}::{self.function}"


def _marked(node: ast.AST) -> Iterator[ast.Call]:
    """Yields the markers below a node: calls of ``….exercises(…)``."""
    for inner in ast.walk(node):
        if (
            isinstance(inner, ast.Call)
            and isinstance(inner.func, ast.Attribute)
            and inner.func.attr == _MARKER
        ):
            yield inner


def _texts(marker: ast.Call) -> list[str]:
    texts = [argument.value for argument in marker.args if isinstance(argument, ast.Constant)]
    if len(texts) != len(marker.args) or not all(isinstance(text, str) for text in texts):
        raise ValueError(
            f"line {marker.lineno}: exercises() takes the names as plain strings, so that no test need be run"
        )
    return [str(text) for text in texts]


class Reader:
    """One file of tests, and the programs that it runs, read without running them.

    Args:
        path: the file, relative to the folder of the tests.
        folder: that folder.
    """

    def __init__(self, path: str, folder: Path) -> None:
        self.path = path
        self.file = folder / path
        self.tree = ast.parse(self.file.read_text(encoding="utf-8"))
        # What a test uses of its own file counts as part of it: helpers, fixtures, programs.
        self.globals: dict[str, list[ast.stmt]] = {}
        for statement in self.tree.body:
            for name in _bound(statement):
                self.globals.setdefault(name, []).append(statement)

    def tests(self) -> Iterator[MarkedTest]:
        of_file = [name for node in self._bound_to("pytestmark") for m in _marked(node) for name in _texts(m)]
        for statement in self.tree.body:
            if isinstance(statement, ast.ClassDef):
                of_class = [name for d in statement.decorator_list for m in _marked(d) for name in _texts(m)]
                for inner in statement.body:
                    yield from self._test(inner, f"{statement.name}::", [*of_file, *of_class])
            else:
                yield from self._test(statement, "", of_file)

    def _bound_to(self, name: str) -> list[ast.stmt]:
        return self.globals.get(name, [])

    def _test(self, node: ast.stmt, prefix: str, inherited: list[str]) -> Iterator[MarkedTest]:
        if not isinstance(node, ast.FunctionDef) or not node.name.startswith("test_"):
            return
        own = [name for d in node.decorator_list for m in _marked(d) for name in _texts(m)]
        names = [*inherited, *own]
        if names:
            words, asserts = self.used(node)
            unique = tuple(dict.fromkeys(names))
            yield MarkedTest(self.path, prefix + node.name, unique, frozenset(words), asserts)

    def used(self, node: ast.stmt) -> tuple[set[str], bool]:
        """Returns the words of a statement and of what it uses of this file, and whether they assert."""
        words: set[str] = set()
        asserts = False
        seen: set[int] = set()
        waiting = [node]
        while waiting:
            statement = waiting.pop()
            if id(statement) in seen:
                continue
            seen.add(id(statement))
            own, own_asserts = _words(statement)
            words |= own
            asserts |= own_asserts
            waiting += [other for word in own if word != "pytestmark" for other in self._bound_to(word)]
            for program in self._programs(statement):
                waiting += ast.parse(program.read_text(encoding="utf-8")).body
        return words, asserts

    def _programs(self, statement: ast.stmt) -> Iterator[Path]:
        """Yields the files ``FOLDER / "name.py"`` that a statement names, also by a parameter of its test."""
        inner = list(ast.walk(statement))
        texts = [
            each.value for each in inner if isinstance(each, ast.Constant) and isinstance(each.value, str)
        ]
        for node in inner:
            if not isinstance(node, ast.BinOp) or (folder := self._folder(node.left)) is None:
                continue
            if isinstance(node.right, ast.Constant):
                names = [str(node.right.value)]
            else:
                names = [name for text in texts for name in (text, f"{text}.py")]
            yield from (folder / name for name in names if name.endswith(".py") and (folder / name).is_file())

    def _folder(self, node: ast.expr) -> Path | None:
        """Returns what ``Path(__file__).parent / "programs"`` means, or a name for it; None for all else."""
        if isinstance(node, ast.Call) and _called(node) == "Path":
            is_file = isinstance(node.args[0], ast.Name) and node.args[0].id == "__file__"
            return self.file if is_file else None
        if isinstance(node, ast.Attribute) and node.attr == "parent":
            folder = self._folder(node.value)
            return None if folder is None else folder.parent
        if isinstance(node, ast.BinOp) and isinstance(node.right, ast.Constant):
            folder = self._folder(node.left)
            return None if folder is None else folder / str(node.right.value)
        if isinstance(node, ast.Name):
            values = [each.value for each in self._bound_to(node.id) if isinstance(each, ast.Assign)]
            return self._folder(values[0]) if values else None
        return None


def _bound(statement: ast.stmt) -> list[str]:
    if isinstance(statement, (ast.FunctionDef, ast.ClassDef)):
        return [statement.name]
    targets: list[ast.expr] = []
    if isinstance(statement, ast.Assign):
        targets = statement.targets
    elif isinstance(statement, ast.AnnAssign):
        targets = [statement.target]
    return [inner.id for target in targets for inner in ast.walk(target) if isinstance(inner, ast.Name)]


def _words(statement: ast.stmt) -> tuple[set[str], bool]:
    words: set[str] = set()
    asserts = False
    waiting: list[ast.AST] = [statement]
    while waiting:
        node = waiting.pop()
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            continue  # a docstring
        if isinstance(node, ast.Call):
            name = _called(node)
            if name in (_MARKER, "hasattr"):
                continue  # neither is a use
            asserts |= bool(_ASSERTING.match(name) or name.endswith(("raises", "warns")))
        if isinstance(node, ast.Assert):
            asserts = True
        elif isinstance(node, ast.Attribute):
            words.add(node.attr)
        elif isinstance(node, ast.Name):
            words.add(node.id)
        elif isinstance(node, ast.arg):
            words.add(node.arg)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):
            words.update(_WORD.findall(node.value))
            asserts |= bool(_ASSERTING_TEXT.search(node.value))
        waiting += ast.iter_child_nodes(node)
    return words, asserts


def _called(call: ast.Call) -> str:
    if isinstance(call.func, ast.Attribute):
        return call.func.attr
    return call.func.id if isinstance(call.func, ast.Name) else ""


def marked_tests(folder: Path) -> list[MarkedTest]:
    """Returns the tests in a folder that say what they exercise.

    Raises:
        ValueError: a marker says it otherwise than in plain strings; the message names the file and the line.
    """
    found: list[MarkedTest] = []
    for path in sorted(folder.rglob("test_*.py")):
        relative = path.relative_to(folder).as_posix()
        try:
            found += Reader(relative, folder).tests()
        except ValueError as error:
            raise ValueError(f"{relative}, {error}") from error
    return found
