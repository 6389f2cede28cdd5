"""What is known to fail, each with its reason, and what is left out. Both lists are meant to shrink.

`KNOWN_FAILURES` maps (op with variant, kind, dtype) to the reason. The dtype `"*"` stands for every dtype of
the op that has samples. A group listed here in which every sample passes fails the run: delete its line.

`EXCLUDED` maps an op to the reason why its samples are not run on the device at all; they are counted.
"""

from __future__ import annotations

KNOWN_FAILURES: dict[tuple[str, str, str], str] = {}

EXCLUDED: dict[str, str] = {}


def reason_for(op: str, kind: str, dtype: str) -> str | None:
    """Returns why failures of the group are expected, None if they are not."""
    return KNOWN_FAILURES.get((op, kind, dtype)) or KNOWN_FAILURES.get((op, kind, "*"))
