"""The requests of a trace: a file of JSON objects, one a line."""

from __future__ import annotations

import json
import math
from pathlib import Path
from typing import Any, NamedTuple

from torch_loom.config.files import no_file
from torch_loom.errors import ConfigurationError

MAX_FILE_BYTES = 64 << 20
MAX_REQUESTS = 100_000
MAX_TOKENS = 1 << 20
MAX_SECONDS = 1e7
# What the simulation walks through: more steps than a schedule can have.
MAX_NEW_TOKENS = 20_000_000
FIELDS = ("prompt_tokens", "new_tokens", "arrival")


class Request(NamedTuple):
    """A request: tokens of its prompt, tokens that it asks for, seconds at which it arrives."""

    prompt_tokens: int
    new_tokens: int
    arrival: float = 0.0


def read(path: Path, context: int | None = None) -> list[Request]:
    """Return the requests of a trace in the order in which they arrive.

    Args:
        path: of lines ``{"prompt_tokens": 512, "new_tokens": 128, "arrival": 0.25}``; without ``arrival`` a
            request is there from the start. Empty lines are skipped.
        context: how many tokens the model takes at most; None: it has no such bound.

    Raises:
        ConfigurationError: the file cannot be read, is empty or too large, or a line has a bad field.
    """
    if (reason := no_file(path)) is not None:
        raise ConfigurationError(f"{path}: {reason}")
    if path.stat().st_size > MAX_FILE_BYTES:
        raise ConfigurationError(f"{path}: the trace is too large. Allowed: {MAX_FILE_BYTES} bytes.")
    try:
        lines = path.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigurationError(f"{path}: cannot be read: {error}") from None
    found = [
        _request(f"{path}:{number}", line, context) for number, line in enumerate(lines, 1) if line.strip()
    ]
    if not 0 < len(found) <= MAX_REQUESTS:
        raise ConfigurationError(f"{path}: {len(found)} requests. Allowed: 1 to {MAX_REQUESTS}, one a line.")
    if (total := sum(each.new_tokens for each in found)) > MAX_NEW_TOKENS:
        raise ConfigurationError(f"{path}: {total} new tokens in all. Allowed: {MAX_NEW_TOKENS}.")
    return sorted(found, key=lambda each: each.arrival)


def _request(where: str, line: str, context: int | None) -> Request:
    try:
        row = json.loads(line)
    except (ValueError, RecursionError) as error:
        raise ConfigurationError(f"{where}: not a JSON object: {error or 'nested too deeply'}") from None
    if not isinstance(row, dict):
        raise ConfigurationError(f"{where}: must be an object, got {type(row).__name__}")
    if unknown := sorted(set(row) - set(FIELDS)):
        raise ConfigurationError(f"{where}: unknown field {unknown[0]!r:.100}. Allowed: {', '.join(FIELDS)}.")
    prompt, new = (_tokens(where, name, row.get(name)) for name in FIELDS[:2])
    arrival = row.get("arrival", 0.0)
    if isinstance(arrival, bool) or not isinstance(arrival, (int, float)) or not 0 <= arrival <= MAX_SECONDS:
        raise ConfigurationError(
            f"{where}: arrival = {arrival!r:.100}. Allowed: seconds, 0 to {MAX_SECONDS:g}."
        )
    if context is not None and prompt + new > context:
        raise ConfigurationError(
            f"{where}: prompt_tokens + new_tokens = {prompt + new}. Allowed: {context}, the model's context."
        )
    return Request(prompt, new, float(arrival))


def _tokens(where: str, name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= MAX_TOKENS:
        raise ConfigurationError(
            f"{where}: {name} = {value!r:.100}. Allowed: a whole number, 1 to {MAX_TOKENS}."
        )
    return value


def percentiles(values: list[float]) -> dict[str, float]:
    """Return mean, median and the 90th and 99th percentile of values."""
    ordered = sorted(values)

    def at(share: float) -> float:
        return ordered[max(0, math.ceil(share * len(ordered)) - 1)]

    return {"mean": sum(ordered) / len(ordered), "p50": at(0.5), "p90": at(0.9), "p99": at(0.99)}
