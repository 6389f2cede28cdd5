"""What `torch.loom.explain` reports: findings, the verdict, and how they are shown."""

from __future__ import annotations

import io
import json
import sys
import traceback
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

# The kinds of findings, in the order in which they are shown: one, several.
KINDS: dict[str, tuple[str, str]] = {
    "host_round_trip": ("host round trip", "host round trips"),
    "implicit_sync": ("implicit synchronisation", "implicit synchronisations"),
    "pageable_copy": ("asynchronous copy of pageable memory", "asynchronous copies of pageable memory"),
    "noncontiguous_copy": ("copy into another layout", "copies into another layout"),
    "dtype_conversion": ("dtype conversion", "dtype conversions"),
    "fallback_op": ("op that is not native", "ops that are not native"),
    "fallback_dtype": ("op in a dtype that is not native", "ops in dtypes that are not native"),
}


@dataclass(frozen=True)
class Finding:
    """Something that the program did at one place and may not have meant to.

    Attributes:
        kind: one of ``host_round_trip``, ``implicit_sync``, ``pageable_copy``, ``noncontiguous_copy``,
            ``dtype_conversion``, ``fallback_op``, ``fallback_dtype``.
        op: the op that the program called, ``"aten::item"``; of a fallback, the op that reached the device.
        count: how often.
        bytes: how many bytes were copied in total; 0 for fallbacks, and where no copy is involved.
        stack: the Python stack of the program's own code, innermost last, from the place where ``explain``
            was called; empty where a thread without Python issued it.
        detail: one line on what happened.
        origin: of a host round trip, the stack that took the data to the host.
    """

    kind: str
    op: str
    count: int
    bytes: int
    stack: tuple[traceback.FrameSummary, ...]
    detail: str
    origin: tuple[traceback.FrameSummary, ...] = ()

    @property
    def where(self) -> str:
        """The innermost line of the program's own: ``file:line``."""
        return place(self.stack)

    def to_dict(self) -> dict[str, Any]:
        """Return it as plain data."""
        return {
            "kind": self.kind,
            "op": self.op,
            "count": self.count,
            "bytes": self.bytes,
            "detail": self.detail,
            "stack": [_plain(frame) for frame in self.stack],
            "origin": [_plain(frame) for frame in self.origin],
        }


def place(stack: Sequence[traceback.FrameSummary]) -> str:
    """Return the innermost line of a stack."""
    return f"{stack[-1].filename}:{stack[-1].lineno}" if stack else "(no Python code)"


def _plain(frame: traceback.FrameSummary) -> dict[str, object]:
    return {"file": frame.filename, "line": frame.lineno, "function": frame.name, "code": frame.line or ""}


def verdict(findings: Sequence[Finding], num_ops: int) -> str:
    """Return the report in one line."""
    if not findings:
        return f"clean: {num_ops} {'op' if num_ops == 1 else 'ops'}, nothing that was not asked for"
    parts = []
    for kind, (each, several) in KINDS.items():
        own = [finding for finding in findings if finding.kind == kind]
        if not own:
            continue
        count, num_bytes = sum(f.count for f in own), sum(f.bytes for f in own)
        text = f"{count} {each if count == 1 else several}"
        parts.append(f"{text} ({_size(num_bytes)})" if num_bytes else text)
    return f"{len(findings)} {'finding' if len(findings) == 1 else 'findings'}: {', '.join(parts)}"


def _size(num_bytes: int) -> str:
    if num_bytes == 1:
        return "1 byte"
    if num_bytes < 1024:
        return f"{num_bytes} bytes"
    power = min((num_bytes.bit_length() - 1) // 10, 4)
    return f"{num_bytes / 1024**power:.1f} {' KMGT'[power]}iB"


def render(line: str, findings: Iterable[Finding]) -> str:
    """Return the verdict and a table of the findings, in colour when standard output is a terminal."""
    findings = list(findings)
    if not findings:
        return line
    from rich.console import Console
    from rich.table import Table
    from rich.text import Text

    is_terminal = sys.stdout is not None and sys.stdout.isatty()
    table = Table("kind", "op", "count", "size", "where")
    for finding in findings:
        where = Text(finding.where)
        if finding.stack and finding.stack[-1].line:
            where.append(f"\n  {finding.stack[-1].line}", style="bold")
        where.append(f"\n  {finding.detail}", style="dim")
        if finding.origin:
            where.append(f"\n  the data left at {place(finding.origin)}", style="dim")
        size = _size(finding.bytes) if finding.bytes else ""
        table.add_row(finding.kind, finding.op, str(finding.count), size, where)
    out = io.StringIO()
    # Wide enough for any place: a table that is not for a terminal is not folded.
    width = None if is_terminal else 10_000
    Console(file=out, force_terminal=is_terminal, width=width, highlight=False).print(table)
    return f"{line}\n{out.getvalue().rstrip()}"


def to_json(line: str, num_ops: int, findings: Iterable[Finding], indent: int | None) -> str:
    """Return a report as JSON."""
    return json.dumps(to_dict(line, num_ops, findings), indent=indent)


def to_dict(line: str, num_ops: int, findings: Iterable[Finding]) -> dict[str, Any]:
    """Return a report as plain data."""
    return {"verdict": line, "num_ops": num_ops, "findings": [finding.to_dict() for finding in findings]}
