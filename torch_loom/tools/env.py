"""`loom env`: every environment variable that torch-loom reads."""

from __future__ import annotations

from rich.table import Table
from rich.text import Text

from torch_loom import chips
from torch_loom.config import SETTINGS, Setting, raw_value, resolve
from torch_loom.errors import ConfigurationError
from torch_loom.tools import console


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


def run() -> None:
    """Prints the table; ends with exit status 1 if the values cannot be used."""
    console.out.print(table())
    try:
        for chip in dict.fromkeys(resolve().chips):
            chips.load(chip)
    except ConfigurationError as error:
        console.fail(error)
