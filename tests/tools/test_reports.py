"""docs/conformance.md lists what users reported: from markers of the tests, which are not run."""

from __future__ import annotations

from pathlib import Path

import pytest

from tools import reports

ROOT = Path(__file__).parents[2]


def test_every_report_has_a_test_that_asserts() -> None:
    found = reports.reports(ROOT / "tests")
    assert found
    assert reports.problems(found) == []


def test_the_page_is_up_to_date() -> None:
    written = (ROOT / reports.FILE).read_text(encoding="utf-8")
    assert written == reports.rewritten(ROOT), "run `make docs`"


@pytest.mark.parametrize(
    ("source", "address"),
    [
        ("pytorch/pytorch#7", "https://github.com/pytorch/pytorch/issues/7"),
        ("a/b:docs/x.md", "https://github.com/a/b/blob/HEAD/docs/x.md"),
        ("a/b.c", "https://github.com/a/b.c"),
        ("https://x.org/y", "https://x.org/y"),
    ],
)
def test_addresses(source: str, address: str) -> None:
    assert reports.address(source) == address


def written(folder: Path, text: str, name: str = "test_x.py") -> list[reports.Report]:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(text, encoding="utf-8")
    return reports.reports(folder)


def test_markers_are_read_without_running_the_tests(tmp_path: Path) -> None:
    text = """
import nothing_of_this_name
class TestIt:
    @pytest.mark.report("a/b#1", "first")
    @pytest.mark.report("a/b#2", "second")
    @pytest.mark.xfail(strict=True, reason="slow roads")
    def test_one(self):
        assert x
@pytest.mark.report("a/b#1", "first")
@pytest.mark.parametrize("x", [1, pytest.param(2, marks=pytest.mark.xfail(strict=True, reason="rain"))])
def test_two(x):
    run("assert x")
def test_three():
    pass
"""
    one, two, three = written(tmp_path, text)
    assert (one.source, one.line, one.test) == ("a/b#1", "first", "test_x.py::TestIt::test_one")
    assert (two.source, two.missing, two.is_partial) == ("a/b#2", ("slow roads",), False)
    assert (three.test, three.missing, three.is_partial) == ("test_x.py::test_two", ("rain",), True)
    section = reports.section([one, two, three])
    assert "2 reports; 0 have the right value" in section
    assert "not yet: slow roads" in section
    assert "not yet, in part: rain" in section
    assert section.count("[a/b#1](https://github.com/a/b/issues/1)") == 1


def test_programs_of_libraries_are_read(tmp_path: Path) -> None:
    text = '@pytest.mark.report("a/b", "x")\ndef test_it(): assert y\n'
    assert [one.test for one in written(tmp_path, text, "libraries/trainer.py")] == [
        "libraries/trainer.py::test_it"
    ]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '@pytest.mark.report("a/b#1")\ndef test_it(): assert x',
            "line 1: report.. takes the source and a line",
        ),
        ("@pytest.mark.report(NAME, LINE)\ndef test_it(): assert x", "plain strings"),
        ('@pytest.mark.report("number 7", "x")\ndef test_it(): assert x', "report 'number 7' is not owner/"),
        (
            '@pytest.mark.report("a/b#1", "x")\ndef helper(): assert x',
            "helper has a marker report, but is no test",
        ),
        (
            '@pytest.mark.report("a/b#1", "x")\n@pytest.mark.xfail(strict=True)\ndef test_it(): assert x',
            "takes its reason",
        ),
    ],
)
def test_markers_that_cannot_be_read(tmp_path: Path, text: str, message: str) -> None:
    with pytest.raises(ValueError, match=message) as caught:
        written(tmp_path, text)
    assert "test_x.py" in str(caught.value)


def test_problems_are_said(tmp_path: Path) -> None:
    text = """
@pytest.mark.report("a/b#1", "x")
def test_one():
    pass
@pytest.mark.report("A/b#1", "x")
def test_two():
    assert x
"""
    assert reports.problems(written(tmp_path, text)) == [
        "test_x.py::test_one asserts nothing",
        "test_x.py::test_two names A/b#1, which is a/b#1 elsewhere",
    ]
