"""docs/api_parity.md: every name has a row, a status and a test, and the tests do what they say."""

from __future__ import annotations

import importlib
import re
from pathlib import Path

import pytest
import torch

from tools.parity import names, rbln, report, signatures
from tools.parity.exercised import MarkedTest, marked_tests
from torch_loom.cuda.names.not_applicable import REASONS

ROOT = Path(__file__).parents[2]

# What may be refused: these name an object of an NVIDIA library. Adding to it is a decision.
MAY_BE_REFUSED = re.compile(
    r"cudart|check_error|cudaStatus|current_blas_handle|current_solver_handle|get_gencode_flags|gds\..*"
    r"|(green_contexts\.)?GreenContext|tunable\..*|nccl\.(unique_id|init_rank|version)"
    r"|profiler\.(cudart|check_error)|_graph_annotations\._\w+"
)


@pytest.fixture(scope="module")
def tests() -> list[MarkedTest]:
    return marked_tests(ROOT / "tests")


@pytest.fixture(scope="module")
def rows(tests: list[MarkedTest]) -> list[report.Row]:
    return report.rows(tests)


@pytest.mark.long
def test_nothing_is_wrong(rows: list[report.Row], tests: list[MarkedTest]) -> None:
    assert report.problems(rows, tests) == []


@pytest.mark.long
def test_nothing_of_torch_rbln_is_wrong(tests: list[MarkedTest]) -> None:
    assert rbln.problems(tests) == []


@pytest.mark.long
def test_the_page_is_up_to_date() -> None:
    written = (ROOT / report.FILE).read_text(encoding="utf-8")
    assert written == report.document(ROOT), "run `make docs`"


def test_every_public_name_of_the_installed_torch_has_a_row() -> None:
    listed = {name.full for name in names.names()}
    for module in sorted({name.module for name in names.names()}):
        public = getattr(importlib.import_module(module), "__all__", ())
        assert [name for name in public if f"{module}.{name}" not in listed] == [], module
    own = [name for name in names.names() if name.module == "torch.cuda" and "all" in name.listed]
    assert sorted(name.name for name in own) == sorted(torch.cuda.__all__)


@pytest.mark.parametrize(("listed", "count"), [("000", 14), ("002", 79), ("003", 57)])
def test_no_name_of_a_seed_is_dropped(listed: str, count: int) -> None:
    """Changing these counts is a decision: the documents do not change."""
    assert sum(listed in name.listed for name in names.names()) == count


def test_public_names_are_in_all() -> None:
    for name in names.names():
        if "all" in name.listed:
            owner = torch.loom
            for part in name.module.split(".")[2:]:
                owner = getattr(owner, part)
            assert name.name in owner.__all__, name.full


def test_only_the_names_of_nvidias_objects_are_refused(rows: list[report.Row]) -> None:
    assert [name for name in REASONS if not MAY_BE_REFUSED.fullmatch(name)] == []
    refused = [
        row.name.full.removeprefix("torch.cuda.") for row in rows if row.status == report.NOT_APPLICABLE
    ]
    assert [name for name in refused if not MAY_BE_REFUSED.fullmatch(name)] == []


@pytest.mark.parametrize("name", REASONS)
def test_a_refused_name_says_why(name: str) -> None:
    value = torch.loom
    for part in name.split("."):
        value = getattr(value, part)
    with pytest.raises(NotImplementedError) as caught:
        value()
    assert f"torch.loom.{name} stands for " in str(caught.value)
    assert str(caught.value).endswith(REASONS[name][1])


def write(folder: Path, text: str) -> list[MarkedTest]:
    (folder / "test_x.py").write_text(text)
    return marked_tests(folder)


def test_markers_are_read_without_running_the_tests(tmp_path: Path) -> None:
    found = write(
        tmp_path,
        """
import nothing_of_this_name
pytestmark = pytest.mark.exercises("torch.cuda.a")
PROGRAM = "seed(); assert x"
def helper():
    assert other_name
class TestIt:
    @pytest.mark.exercises("torch.cuda.b", "torch.cuda.c")
    def test_one(self, helper):
        "Says seed_all."
        loom.manual_seed(1)
def test_two():
    run(PROGRAM)
    hasattr(loom, "init")
def test_three():
    loom.init()
""",
    )
    one, two, three = found
    assert (one.id, one.names) == (
        "test_x.py::TestIt::test_one",
        ("torch.cuda.a", "torch.cuda.b", "torch.cuda.c"),
    )
    assert one.asserts
    assert {"manual_seed", "other_name"} <= one.words
    assert "seed_all" not in one.words
    assert two.asserts
    assert "seed" in two.words
    assert "init" not in two.words
    assert not three.asserts


def test_a_marker_that_cannot_be_read_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(
        ValueError, match=r"test_x\.py, line 2: exercises\(\) takes the names as plain strings"
    ):
        write(tmp_path, "NAMES = []\n@pytest.mark.exercises(*NAMES)\ndef test_it(): pass\n")


def test_tests_that_do_not_do_what_they_say_are_told(tmp_path: Path) -> None:
    found = write(
        tmp_path,
        """
@pytest.mark.exercises("torch.cuda.seed", "torch.cuda.sseed")
def test_it():
    loom.init()
""",
    )
    told = report.problems(report.rows(found), found)
    assert "test_x.py::test_it asserts nothing" in told
    assert "test_x.py::test_it says that it exercises torch.cuda.seed, but does not use it" in told
    assert "test_x.py::test_it exercises torch.cuda.sseed, which is not in names.tsv" in told
    assert "no test exercises torch.cuda.synchronize" in told
    assert "no test exercises torch.cuda.random.seed" not in told


def original(a: int, b: int = 2, *, c: int = 3) -> None: ...


@pytest.mark.parametrize(
    ("ours", "expected"),
    [
        (lambda a, b=0, *, c=0: None, None),
        (lambda a=0, b=0, d=0, *, c=0: None, None),
        (lambda *args, **kwargs: None, None),
        (lambda a, b=0: None, "parameter c is missing"),
        (lambda a, b, *, c=0: None, "parameter b has no default"),
        (lambda b=0, a=0, *, c=0: None, "positional parameter 1 is not a"),
        (lambda a, b=0, *, c=0, d: None, "parameter d is required"),
    ],
)
def test_signatures_are_compared(ours: object, expected: str | None) -> None:
    wanted, mine = (signatures._parameters(function) for function in (original, ours))
    assert wanted is not None
    assert mine is not None
    assert signatures._difference(wanted, mine) == expected
