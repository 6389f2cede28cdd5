"""Races to be found, each beside its repaired twin; docs/races.md shows the table.

``python tests/device/planted_races.py`` writes the table into docs/races.md.
"""

from __future__ import annotations

from pathlib import Path

import planted_orderings  # noqa: F401 - adds to RACES
import planted_programs  # noqa: F401 - adds to RACES
from planted_race import RACES, Race

__all__ = ["RACES", "Race"]

DOC = Path(__file__).parents[2] / "docs" / "races.md"
BEGIN, END = "<!-- planted races: begin -->", "<!-- planted races: end -->"


def table() -> str:
    """Return the races as a table in Markdown."""
    rows = [f"| `{race.name}` | {race.what} | `{race.error}` |" for race in RACES]
    return "\n".join(["| planted race | what is wrong | reported as |", "|---|---|---|", *rows])


def written(text: str) -> str:
    """Return the document with the table as it is now."""
    before, _, rest = text.partition(BEGIN)
    _, _, after = rest.partition(END)
    return f"{before}{BEGIN}\n{table()}\n{END}{after}"


if __name__ == "__main__":
    DOC.write_text(written(DOC.read_text(encoding="utf-8")), encoding="utf-8")
