"""What reads descriptions, TOML files of figures: declared by a class, each with a check.

A file may come from anywhere: whatever is wrong with it is an error of the reader's class.
"""

from __future__ import annotations

import difflib
import sys
from collections.abc import Mapping
from dataclasses import MISSING, Field, field, fields
from pathlib import Path
from types import MappingProxyType
from typing import Any, ClassVar, NoReturn

from torch_loom.chips import checks
from torch_loom.chips.checks import MAX_TEXT_CHARS, BadValueError, Check
from torch_loom.config.files import no_file
from torch_loom.errors import ConfigurationError

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

MAX_FILE_BYTES = 64 << 10
NO_TABLE: Mapping[str, Any] = MappingProxyType({})


def figure(check: Check, meaning: str, unit: str = "", default: Any = MISSING) -> Any:
    """Declare a figure: what it takes, what it means, its unit, and its value where it is not given."""
    metadata = {"check": check, "meaning": meaning, "unit": unit}
    if isinstance(default, Mapping):
        # Equality goes by tables too; a hash cannot.
        return field(default_factory=lambda: default, metadata=metadata, hash=False)
    return field(default=default, metadata=metadata)


def declared(kind: Any) -> dict[str, Field[Any]]:
    """Return the declarations of all figures of a class by key of the file."""
    return {entry.name.removesuffix("_bytes"): entry for entry in fields(kind)}


def is_required(entry: Field[Any]) -> bool:
    """Return whether a description must have the figure."""
    return entry.default is MISSING and entry.default_factory is MISSING


def shown(value: object) -> str:
    """Return a value for a message, cut to one line."""
    text = repr(dict(value) if isinstance(value, MappingProxyType) else value)
    return text if len(text) <= MAX_TEXT_CHARS else f"{text[:MAX_TEXT_CHARS]}…"


class Reader:
    """Reads one file; every complaint names the file.

    Attributes:
        error: what is raised.
        noun: what the file is.
        takes: what may be given where a file is named.
    """

    error: ClassVar[type[ConfigurationError]]
    noun: ClassVar[str]
    takes: ClassVar[str]

    def __init__(self, path: Path) -> None:
        self.path = path

    def values(self, kind: Any) -> dict[str, Any]:
        """Return the checked figures of a class by name of its attribute: those that the file has."""
        table = self.parse()
        known = declared(kind)
        for key in table:
            if key not in known:
                near = difflib.get_close_matches(key, known, 3)
                allowed = [f"{', '.join(near)}, or another key of a description"] if near else known
                self.fail(f"unknown key {shown(key)}", ", ".join(allowed))
        required = [key for key, entry in known.items() if is_required(entry)]
        if missing := [key for key in required if key not in table]:
            others = f", and so are {', '.join(map(repr, missing[1:]))}" if missing[1:] else ""
            self.fail(
                f"the key {missing[0]!r} is missing{others}",
                f"a description has {', '.join(required)}; other keys may be left out",
            )
        return {
            entry.name: self.checked(key, entry, table[key], known)
            for key, entry in known.items()
            if key in table
        }

    def parse(self) -> dict[str, Any]:
        try:
            # A device or a pipe could go on for ever, or wait; at most one byte too many is read of a file.
            if (reason := no_file(self.path)) is not None:
                raise self.error(f"{self.path}: {reason}; {self.takes}")
            with self.path.open("rb") as file:
                content = file.read(MAX_FILE_BYTES + 1)
        except (OSError, ValueError) as error:
            if isinstance(error, self.error):
                raise
            raise self.error(f"{self.path}: the {self.noun} cannot be read: {error}") from None
        if len(content) > MAX_FILE_BYTES:
            self.fail("the file is too large", f"{MAX_FILE_BYTES} bytes")
        try:
            table: dict[str, Any] = tomllib.loads(content.decode("utf-8"))
        except (ValueError, RecursionError) as error:
            raise self.error(f"{self.path}: not a TOML file: {error or 'nested too deeply'}") from None
        return table

    def checked(self, key: str, entry: Field[Any], value: object, known: Mapping[str, Any]) -> object:
        if key == "sources":
            return self.sources(value, known)
        try:
            return entry.metadata["check"](value)
        except BadValueError as error:
            if error.key.endswith("unknown key"):
                where = f"{key}.{error.key}".removesuffix(".unknown key")
                self.fail(f"{where}: unknown key {shown(error.value)}", error.allowed)
            self.fail_value(f"{key}.{error.key}" if error.key else key, error.value, error.allowed)

    def fail(self, what: str, allowed: str) -> NoReturn:
        raise self.error(f"{self.path}: {what}. Allowed: {allowed}.")

    def fail_value(self, key: str, value: object, allowed: str) -> NoReturn:
        self.fail(f"{key} = {shown(value)}", allowed)

    def sources(self, value: object, known: Mapping[str, Any]) -> Mapping[str, str]:
        if not isinstance(value, dict):
            self.fail_value("sources", value, "a table of texts, by key")
        names = [key for key in known if key != "sources"]
        line = checks.text()
        for name, source in value.items():
            if name not in names:
                self.fail(f"sources: unknown key {shown(name)}", ", ".join(names))
            try:
                line(source)
            except BadValueError:
                self.fail_value(f"sources.{name}", source, line.allowed)
        return MappingProxyType(dict(value))
