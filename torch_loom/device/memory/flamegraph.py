"""Flame graphs as SVG: what a list of stacks with sizes adds up to."""

from __future__ import annotations

from dataclasses import dataclass, field

_WIDTH, _ROW = 1200, 18  # pixels
_NARROWEST = 0.3  # pixels; what is narrower is not drawn
_CHARACTER = 7  # pixels
_COLOURS = ("#f4a259", "#f6bd60", "#f28482", "#f7b267", "#e9c46a", "#f79d65")


@dataclass
class _Frame:
    total: int = 0
    children: dict[str, _Frame] = field(default_factory=dict)


def render(lines: str, unit: str = "bytes") -> str:
    """Return an SVG image of stacks, one a line: frames from the outermost in, joined by ``;``, and a size.

    Raises:
        ValueError: a line does not end with a space and a number.
    """
    root = _Frame()
    for line in lines.splitlines():
        if line:
            _add(root, line)
    rows: list[str] = []
    depth = _draw(rows, "all", root, x=0.0, depth=0, scale=_WIDTH / max(root.total, 1), unit=unit)
    height = depth * _ROW
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{_WIDTH}" height="{height}" '
        f'font-family="monospace" font-size="12">\n' + "\n".join(rows) + "\n</svg>\n"
    )


def _add(root: _Frame, line: str) -> None:
    stack, _, size = line.rpartition(" ")
    if not stack or not size.isdigit():
        raise ValueError(f"a line must be frames joined by ';', a space and a size, got {line!r}")
    root.total += int(size)
    frame = root
    for name in stack.split(";"):
        frame = frame.children.setdefault(name, _Frame())
        frame.total += int(size)


def _draw(rows: list[str], name: str, frame: _Frame, x: float, depth: int, scale: float, unit: str) -> int:
    """Draw a frame and those within it, and return how many rows there are."""
    from html import escape  # here: importing torch must stay cheap

    # Not by recursion: stacks may be deeper than Python's.
    pending = [(name, frame, x, depth)]
    deepest = 0
    while pending:
        name, frame, x, depth = pending.pop()
        width = frame.total * scale
        if width < _NARROWEST:
            continue
        deepest = max(deepest, depth + 1)
        colour = _COLOURS[sum(name.encode()) % len(_COLOURS)]
        label = name[: int(width / _CHARACTER)]
        y = depth * _ROW
        rows.append(
            f"<g><title>{escape(name)} ({frame.total:,} {unit})</title>"
            f'<rect x="{x:.1f}" y="{y}" width="{width:.1f}" height="{_ROW - 1}" fill="{colour}"/>'
            f'<text x="{x + 3:.1f}" y="{y + 13}">{escape(label)}</text></g>'
        )
        for child_name, child in frame.children.items():
            pending.append((child_name, child, x, depth + 1))
            x += child.total * scale
    return deepest
