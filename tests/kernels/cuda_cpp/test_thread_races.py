"""What `--sanitize` finds within a block on global memory, and where an int overflows."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs"
SOURCE = (PROGRAMS / "thread_races.cu").read_text(encoding="utf-8")
SETTINGS = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_ASSERTS": "immediate", "TORCH_LOOM_SANITIZER": "1"}

_PLACE = r"a race on \w+ memory: block \(0, 0, 0\), thread "
FOUND = {
    "adds": _PLACE
    + r"\(1, 0, 0\) reads 4 bytes at code:{0}, which thread \(0, 0, 0\) has written at code:{0}: no",
    "reads_warp_behind_syncwarp": _PLACE
    + r"\(\d+, 0, 0\) (reads 4 bytes at code:{0}|writes 4 bytes at code:\d+, .* has read at code:{0})",
    "reads_lane_before_syncwarp": _PLACE
    + r"\(\d+, 0, 0\) (reads 4 bytes at code:{0}|writes 4 bytes at code:\d+, .* has read at code:{0})",
    "two_to_one": _PLACE
    + r"\(1, 0, 0\) writes 4 bytes at code:{0}, which thread \(0, 0, 0\) has written at code:{0}: no",
    "shorts": _PLACE
    + r"\(63, 0, 0\) writes 2 bytes at code:{0}, which thread \(5, 0, 0\) has written at code:",
    "product": r"(268435456 \* 8|8 \* 268435456) is 2147483648, .* "
    r"at code:{0} in block \(0, 0, 0\), thread \(8, 0, 0\)",
    "sum": r"100 \+ 2147483600 is 2147483700, .* at code:{0} in block \(0, 0, 0\), thread \(0, 0, 0\)",
}
SUM = 64 * 63 // 2
SILENT = {
    "adds_by_atomic": SUM,
    "reads_next_behind_barrier": 2 * SUM,
    "reads_lane_behind_syncwarp": 2 * SUM,
    "by_halves_of_a_warp": 2 * SUM + 120,
    "same_to_one": 32,
    "under_a_lock": SUM,
    "last_thread_adds": 2 * SUM + 64,
    "unsigned_sum": 64 * 52,
}


@pytest.mark.slow
def test_races_within_a_block_and_overflows(warm_python: PythonRunner, cache: Path) -> None:
    settings = {**SETTINGS, "TORCH_LOOM_KERNEL_CACHE": str(cache)}
    done = warm_python(PROGRAMS / "thread_races.py", settings, given=(SOURCE,))
    shown = dict(line.split(": ", 1) for line in done.stdout.splitlines())
    for name, message in FOUND.items():
        line = next(i for i, text in enumerate(SOURCE.splitlines(), 1) if text.endswith(f"// {name}"))
        assert "unspecified launch failure" in shown[name], name
        assert re.search(message.format(line), shown.pop(name)), name
    for name, total in SILENT.items():
        assert shown.pop(name) == f"nothing {total}", name
    assert set(shown) == {"wide_product", "hashes"}, shown
    assert all(text.startswith("nothing ") for text in shown.values()), shown
