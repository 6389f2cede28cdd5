"""What users of GPUs reported: a section of docs/conformance.md, from the markers ``report`` of the tests.

A report more is a test more. The marker takes where it was reported and what it is, in a line::

    @pytest.mark.report("pytorch/pytorch#95668", "the first Linear leaves a workspace allocated")

The first is ``owner/repository#number``, ``owner/repository:path`` for source or documentation that says what
happens, ``owner/repository``, or an address. The tests are not run. A reason of an ``xfail`` is shown.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.blocks import markdown_table, replace_block
from tools.parity.exercised import Reader

FILE = "docs/conformance.md"
TITLE, BLOCK, COMMAND = "What GPU users reported", "reports", "python -m tools.docs"
_MARKER = "report"
_SOURCE = re.compile(r"(?P<name>[\w.-]+/[\w.-]+)(?:#(?P<number>\d+)|:(?P<path>[\w./-]+))?")
# Programs of libraries run where these are installed, by `python -m tests.conformance.suites`.
_PLACES = ("**/test_*.py", "libraries/*.py")


@dataclass(frozen=True)
class Report:
    """A public report and a test that shows the right value.

    Attributes:
        source: where it was reported, as in the marker.
        line: what it is.
        path: the file of the test, relative to the folder of the tests.
        function: the test, with the class in front if it is in one.
        asserts: whether the test asserts anything.
        missing: why the test, or some of its cases, fail as yet.
        is_partial: whether only some of its cases do.
    """

    source: str
    line: str
    path: str
    function: str
    asserts: bool
    missing: tuple[str, ...]
    is_partial: bool

    @property
    def test(self) -> str:
        return f"{self.path}::{self.function}"


def address(source: str) -> str:
    """Returns the address of a report.

    Raises:
        ValueError: it is none of the forms that a marker takes.
    """
    if source.startswith("https://"):
        return source
    found = _SOURCE.fullmatch(source)
    if found is None:
        raise ValueError(
            f"report {source!r} is not owner/repository#number, owner/repository:path, owner/repository or https://…"
        )
    repository = f"https://github.com/{found['name']}"
    if found["number"]:
        return f"{repository}/issues/{found['number']}"
    return f"{repository}/blob/HEAD/{found['path']}" if found["path"] else repository


def reports(folder: Path) -> list[Report]:
    """Returns the reports that the tests in a folder show, by file, in the order of the tests.

    Raises:
        ValueError: a marker cannot be read; the message names the file and the line.
    """
    paths = sorted({path for place in _PLACES for path in folder.glob(place)})
    found: list[Report] = []
    for path in paths:
        relative = path.relative_to(folder).as_posix()
        try:
            found += _of_file(relative, folder)
        except ValueError as error:
            raise ValueError(f"{relative}, {error}") from error
    return found


def _of_file(path: str, folder: Path) -> Iterator[Report]:
    if f"mark.{_MARKER}(" not in (folder / path).read_text(encoding="utf-8"):
        return
    reader = Reader(path, folder)
    for statement in reader.tree.body:
        inner = statement.body if isinstance(statement, ast.ClassDef) else [statement]
        prefix = f"{statement.name}::" if isinstance(statement, ast.ClassDef) else ""
        for node in inner:
            if isinstance(node, ast.FunctionDef):
                yield from _of_test(reader, node, path, prefix)


def _of_test(reader: Reader, node: ast.FunctionDef, path: str, prefix: str) -> Iterator[Report]:
    markers = [call for call in node.decorator_list if isinstance(call, ast.Call) and _is(call, _MARKER)]
    if not markers:
        return
    if not node.name.startswith("test_"):
        raise ValueError(f"line {node.lineno}: {node.name} has a marker report, but is no test")
    expected = [call for mark in node.decorator_list for call in ast.walk(mark) if _is(call, "xfail")]
    missing = tuple(dict.fromkeys(_reason(call) for call in expected))
    is_partial = not any(_is(mark, "xfail") for mark in node.decorator_list)
    _, asserts = reader.used(node)
    for marker in markers:
        source, line = _texts(marker)
        address(source)
        yield Report(source, line, path, prefix + node.name, asserts, missing, is_partial)


def _is(node: ast.AST, marker: str) -> bool:
    return isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == marker


def _texts(marker: ast.Call) -> tuple[str, str]:
    texts = [argument.value for argument in marker.args if isinstance(argument, ast.Constant)]
    if len(texts) != 2 or marker.keywords or not all(isinstance(text, str) for text in texts):
        raise ValueError(f"line {marker.lineno}: report() takes the source and a line, as plain strings")
    return str(texts[0]), str(texts[1])


def _reason(call: ast.AST) -> str:
    assert isinstance(call, ast.Call)
    given = {word.arg: word.value for word in call.keywords}
    reason = given.get("reason")
    if not isinstance(reason, ast.Constant) or not isinstance(reason.value, str):
        raise ValueError(f"line {call.lineno}: the xfail of a report takes its reason as a plain string")
    return reason.value


def problems(found: Sequence[Report]) -> list[str]:
    """Returns what is wrong: tests that assert nothing, and sources under two addresses."""
    said = [f"{report.test} asserts nothing" for report in found if not report.asserts]
    spellings: dict[str, str] = {}
    for report in found:
        first = spellings.setdefault(report.source.lower(), report.source)
        if first != report.source:
            said.append(f"{report.test} names {report.source}, which is {first} elsewhere")
    return said


def section(found: Sequence[Report]) -> str:
    """Returns the section: how many there are, and a table of them."""
    rows: dict[tuple[str, str], list[Report]] = {}
    for report in found:
        rows.setdefault((report.source, report.line), []).append(report)
    lines = [
        [f"[{source.removeprefix('https://')}]({address(source)})", line, "<br>".join(map(_cell, tests))]
        for (source, line), tests in rows.items()
    ]
    wrong = sum(any(report.missing for report in tests) for tests in rows.values())
    note = (
        "What users of GPUs have reported in public, and source or documentation that says what a GPU does. "
        "Each row names a test of ours with the right value. Tests of `tests/libraries` run where the "
        f"libraries are installed. {len(rows)} reports; {len(rows) - wrong} have the right value."
    )
    return f"{note}\n\n{markdown_table(['report', 'what it is', 'test'], lines)}"


def _cell(report: Report) -> str:
    link = f"[{report.test}](../tests/{report.path})"
    if not report.missing:
        return link
    state = "not yet, in part" if report.is_partial else "not yet"
    return f"{link}<br>{state}: {'; '.join(report.missing)}"


def rewritten(root: Path) -> str:
    """Returns docs/conformance.md of the checkout in `root` with the section made anew.

    Raises:
        ValueError: a marker cannot be read, or the page has no such block.
    """
    text = (root / FILE).read_text(encoding="utf-8")
    return replace_block(text, BLOCK, section(reports(root / "tests")))
