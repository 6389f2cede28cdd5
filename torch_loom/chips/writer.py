"""Writes a chip description: the same figures come back when it is read."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import MISSING
from typing import Any

from torch_loom.chips.chip import Chip, figures, load


def to_toml(chip: Chip, comment: str = "") -> str:
    """Return the file of a chip: figures in their order, then tables; what is not known is left out."""
    plain, tables = [], []
    for key, entry in figures().items():
        value = getattr(chip, entry.name)
        if key == "host_issue_ns" and chip.host_of and value == load(chip.host_of).host_issue_ns:
            continue
        if isinstance(value, Mapping):
            if value:
                tables.append((key, value))
        elif key == "native_ops":
            plain.append(f"native_ops = {_value('all' if value is None else value)}")
        elif entry.default is MISSING or value != entry.default:
            plain.append(f"{key} = {_value(_size(value) if entry.name.endswith('_bytes') else value)}")
    lines = [*(f"# {line}" for line in comment.splitlines()), *plain]
    for key, table in sorted(tables, key=lambda each: each[0] == "efficiency"):
        lines += _table(key, table)
    return "\n".join(lines) + "\n"


def _table(name: str, table: Mapping[str, Any]) -> list[str]:
    lines = []
    plain = {key: value for key, value in table.items() if not isinstance(value, Mapping)}
    if plain:
        lines += ["", f"[{name}]", *(f"{key} = {_value(value)}" for key, value in plain.items())]
    for key, value in table.items():
        if isinstance(value, Mapping):
            lines += _table(f"{name}.{key}", value)
    return lines


def _size(number: int) -> int | str:
    """Return a number of bytes in the largest unit that it is whole in."""
    for unit, size in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if number and number % size == 0:
            return f"{number // size}{unit}"
    return number


def _value(value: object) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, str):
        return json.dumps(value, ensure_ascii=False)
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(_value(each) for each in value)}]"
    if isinstance(value, float):
        return f"{value:.6g}" if value != int(value) else f"{value:.1f}"
    return str(value)
