"""`docs/api_parity.md`: a row for each name, with what it is here and the test that exercises it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from tools.blocks import markdown_table
from tools.parity import rbln
from tools.parity.exercised import MarkedTest, marked_tests
from tools.parity.names import LISTS, PACKAGE, Name, bindings, found, is_found, names
from tools.parity.signatures import ACCEPTED, difference
from torch_loom.cuda.names.not_applicable import REASONS

FILE = "docs/api_parity.md"
# So many tests are named in a row; which others there are, the markers say.
MAX_TESTS = 2

MISSING, IMPLEMENTED, ALIAS, NOT_APPLICABLE = "missing", "implemented", "alias", "not applicable"


@dataclass(frozen=True)
class Row:
    """What a name is here.

    Attributes:
        name: the name.
        status: missing, implemented, alias or not applicable.
        note: of which object it is an alias, or why it does not apply.
        tests: those that exercise it, under this name or another name of the same object.
        words: the names by which a test may call it.
    """

    name: Name
    status: str
    note: str
    tests: tuple[MarkedTest, ...]
    words: frozenset[str]

    @property
    def needs_test(self) -> bool:
        # A module is no more than its names; a type variable does nothing.
        return self.name.kind not in ("module", "typevar")


def _last(path: str) -> str:
    return path.rpartition(".")[2]


def _alias_of(name: Name, places: Sequence[str]) -> str | None:
    """Returns the other name that an object goes by here, or PyTorch's if it is PyTorch's own."""
    value = found(name)
    own, module = getattr(value, "__name__", None), getattr(value, "__module__", None) or ""
    if not isinstance(own, str) or name.kind in ("module", "typevar", "method"):
        return None
    if own != _last(name.name):
        others = [place for place in places if _last(place) == own]
        if others:
            return min(others, key=len)
    if module.split(".")[0] == "torch" and not module.startswith(name.here.rpartition(".")[0]):
        return f"{module}.{own}"
    return None


def rows(tests: Sequence[MarkedTest]) -> list[Row]:
    """Returns the row of each name."""
    marked: dict[str, list[MarkedTest]] = defaultdict(list)
    for test in tests:
        for full in test.names:
            marked[full].append(test)
    return [_row(name, marked) for name in names()]


def _row(name: Name, marked: dict[str, list[MarkedTest]]) -> Row:
    here = is_found(name)
    places = bindings(found(name)) if here and name.kind != "method" else []
    top = name.here.split(".")[:2]
    spellings = [name.full, *(PACKAGE + place.removeprefix(".".join(top)) for place in places)]
    own = list({test.id: test for full in spellings for test in marked.get(full, [])}.values())
    words = frozenset(map(_last, [name.full, *places]))
    refused = [REASONS[key] for full in spellings if (key := full.removeprefix(f"{PACKAGE}.")) in REASONS]
    if refused:
        status, note = NOT_APPLICABLE, "{}: {}".format(*refused[0])
    elif not here:
        status, note = MISSING, ""
    elif (alias := _alias_of(name, places)) is not None:
        status, note = ALIAS, f"`{alias}`"
    else:
        status, note = IMPLEMENTED, ""
    return Row(name, status, note, tuple(own), words)


def problems(found_rows: Sequence[Row], tests: Sequence[MarkedTest]) -> list[str]:
    """Returns what is wrong: names that are missing or without a test, tests that do not do what they say."""
    said = []
    by_name = {row.name.full: row for row in found_rows}
    for row in found_rows:
        if row.status == MISSING:
            said.append(f"{row.name.here} does not exist")
        elif row.needs_test and not row.tests:
            said.append(f"no test exercises {row.name.full}")
        if row.status not in (MISSING, NOT_APPLICABLE):
            differs = difference(row.name)
            if differs is not None and row.name.full not in ACCEPTED:
                said.append(f"{row.name.here} is called otherwise than {row.name.full}: {differs}")
            if differs is None and row.name.full in ACCEPTED:
                said.append(f"signatures.ACCEPTED names {row.name.full}, which does not differ")
    for test in tests:
        if not test.asserts:
            said.append(f"{test.id} asserts nothing")
        for full in test.names:
            if full.startswith(rbln.PREFIX):
                continue  # of another list
            if full not in by_name:
                said.append(f"{test.id} exercises {full}, which is not in names.tsv")
            elif not by_name[full].words & test.words:
                said.append(f"{test.id} says that it exercises {full}, but does not use it")
    return said


def _state(row: Row) -> str:
    return f"{row.status}: {row.note}" if row.note else row.status


def _tests(row: Row) -> str:
    links = [f"[{test.path}::{test.function}](../tests/{test.path})" for test in row.tests[:MAX_TESTS]]
    return "<br>".join(links) or ("" if row.needs_test else "-")


def _counted(found_rows: Sequence[Row]) -> list[str]:
    states = [row.status for row in found_rows]
    done = states.count(IMPLEMENTED) + states.count(ALIAS)
    tested = sum(bool(row.tests) for row in found_rows if row.needs_test)
    return [
        f"{len(states) - states.count(MISSING)} of {len(states)}",
        str(done),
        str(states.count(NOT_APPLICABLE)),
        f"{tested} of {sum(row.needs_test for row in found_rows)}",
    ]


def counts() -> str:
    """Returns the table of how many names of each list are there, without the column of the tests."""
    return _counts(rows([]), None)


def _counts(found_rows: Sequence[Row], tests: Sequence[MarkedTest] | None) -> str:
    groups = {text: [row for row in found_rows if key in row.name.listed] for key, text in LISTS.items()}
    own = [row for row in groups[LISTS["all"]] if row.name.module == PACKAGE]
    groups = {"`torch.cuda.__all__`": own, **groups}
    header = ["names of", "there", "implemented", "not applicable", "with a test"]
    lines = [[text, *_counted(group)] for text, group in groups.items()]
    end = -1 if tests is None else None
    return markdown_table(header[:end], [*(line[:end] for line in lines), rbln.counted(tests)])


def document(root: Path) -> str:
    """Returns the text of docs/api_parity.md for the checkout in `root`.

    Raises:
        ValueError: a marker cannot be read; the message names the file and the line.
    """
    tests = marked_tests(root / "tests")
    found_rows = rows(tests)
    parts = [
        "# The device API, name by name",
        "Written by `make docs`. *Alias*: the object goes by the name given. *Not applicable*: it names a "
        "part of NVIDIA's software; using it raises `NotImplementedError` with the reason. A test counts "
        "when it calls the name and asserts its effect; at most two are named.",
        _counts(found_rows, tests),
    ]
    modules: dict[str, list[Row]] = defaultdict(list)
    for row in found_rows:
        modules[row.name.module].append(row)
    for module, group in modules.items():
        parts.append(f"## {group[0].name.here.rpartition('.')[0] if module != PACKAGE else 'torch.loom'}")
        lines = [[f"`{row.name.name}`", _state(row), _tests(row)] for row in group]
        parts.append(markdown_table(["name", "state", "exercised by"], lines))
    parts += ["## Calls that differ from torch.cuda's", _accepted(), rbln.section(tests)]
    return "\n\n".join(parts) + "\n"


def _accepted() -> str:
    if not ACCEPTED:
        return "None."
    return markdown_table(
        ["name", "difference, and why"], [[f"`{full}`", why] for full, why in sorted(ACCEPTED.items())]
    )
