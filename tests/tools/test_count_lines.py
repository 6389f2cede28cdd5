"""What counts as a line of code, and where."""

from __future__ import annotations

import pytest

from tools.count_lines import WORKING_TREE, code_lines, files, rooms


@pytest.mark.parametrize(
    ("text", "ending", "lines"),
    [
        ("# why\n\nx = 1  # one\n    # more\ny = 2\n", ".py", 2),
        ('"""What it is."""\n\n\ndef f() -> None: ...\n', ".py", 2),
        ("// why\nint x;  // one\n/* two\nlines */\n\n#define Y 1\n", ".cpp", 2),
        ("", ".h", 0),
    ],
)
def test_code_lines(text: str, ending: str, lines: int) -> None:
    assert code_lines(text, ending) == lines


def test_generated_files_and_those_of_tests_are_left_out() -> None:
    found = {str(path) for path in files(WORKING_TREE)}
    assert "csrc/driver/driver.h" in found
    assert not any("/generated/" in name or name.startswith(("csrc/testing/", "tests/")) for name in found)


@pytest.mark.long
def test_every_file_counts_in_its_room() -> None:
    by_room, whole = rooms(WORKING_TREE, depth=2), rooms(WORKING_TREE, depth=1)
    assert sum(by_room.values()) == sum(whole.values())
    assert set(whole) == {"torch_loom", "csrc"}
    assert by_room["csrc/driver"] > 1000
