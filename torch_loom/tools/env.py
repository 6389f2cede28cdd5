"""`loom env`: every environment variable that torch-loom reads."""

from __future__ import annotations

import json
from collections.abc import Iterator

from rich.console import RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from torch_loom import chips
from torch_loom.config import SETTINGS, Setting, raw_value, resolve
from torch_loom.errors import ConfigurationError
from torch_loom.tools import console

# The table's first three columns take 90.
TABLE_COLUMNS = 130


def current_cell(setting: Setting[object]) -> Text:
    """Returns the value in force and where it comes from; a bad value is red and says why."""
    text, source = raw_value(setting)
    if text is None:
        return Text("not set", style="dim")
    try:
        setting.parse(text)
    except ValueError as error:
        return Text(f"{text!r}: {error}", style="bold red")
    return Text(text, style="dim" if source == "default" else "bold green")


def table() -> Table:
    """Returns the table of all settings, one row each."""
    result = Table(show_lines=True)
    result.add_column("variable", no_wrap=True)
    for name in ("default", "now", "meaning"):
        result.add_column(name)
    for setting in SETTINGS:
        result.add_row(
            Text(setting.env).append(f"\n{setting.type_name}", style="dim"),
            Text("not set", style="dim") if setting.default is None else Text(setting.default),
            current_cell(setting),
            Text(setting.meaning).append(f"\nTakes: {setting.allowed}", style="dim"),
        )
    return result


def listing() -> Iterator[RenderableType]:
    """Yields all settings one below the other, for terminals in which the table's columns have no room."""
    for setting in SETTINGS:
        default = "not set" if setting.default is None else setting.default
        head = Text(setting.env, style="bold").append(" = ").append_text(current_cell(setting))
        yield head.append(f"  ({setting.type_name}, default: {default})", style="dim not bold")
        meaning = Text(setting.meaning).append(f"\nTakes: {setting.allowed}", style="dim")
        yield Padding(meaning, (0, 0, 0, 4))


def as_json() -> str:
    """Returns all settings as a JSON object by the variable's name.

    Each has ``value`` and ``default``, texts or null; ``source``, where the value comes from; ``type``,
    ``takes`` and ``meaning``, sentences.
    """
    found = {}
    for setting in SETTINGS:
        value, source = raw_value(setting)
        found[setting.env] = {
            "value": value,
            "default": setting.default,
            "source": source,
            "type": setting.type_name,
            "takes": setting.allowed,
            "meaning": setting.meaning,
        }
    return json.dumps(found, indent=2)


def run(is_json: bool = False) -> None:
    """Prints all settings; ends with exit status 1 if the values cannot be used."""
    if is_json:
        print(as_json())
    else:
        for part in (table(),) if console.out.width >= TABLE_COLUMNS else listing():
            console.out.print(part)
    try:
        for chip in dict.fromkeys(resolve().chips):
            chips.load(chip)
    except ConfigurationError as error:
        console.fail(error)
