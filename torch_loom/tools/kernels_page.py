"""The page of `loom kernels`: each kernel with its source and the generated code side by side."""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from html import escape
from typing import Any

from torch_loom.image.report import duration
from torch_loom.tools.plan_page import STYLE
from torch_loom.tools.plan_text import size_text

_STYLE = """
body{max-width:1500px}.pair{display:grid;grid-template-columns:minmax(0,1fr) minmax(0,1fr);gap:12px}
@media (max-width:900px){.pair{grid-template-columns:minmax(0,1fr)}}
.pair pre{white-space:pre;max-height:70vh;margin:0;line-height:1.4}
.pair{align-items:start}
.pair b{display:block;font-size:13px;color:var(--dim);font-weight:600;margin:8px 0 4px}
.no{color:var(--dim);user-select:none}
"""


def checks_text(kernel: dict[str, Any]) -> str:
    """Return in words how the accesses of a kernel are checked."""
    if kernel["is_watched"]:
        return "each, watched"
    if not kernel["generated"]:
        return "each" if kernel["checks"] else "none"
    checks = kernel["checks"]
    names = {"ends": "by block", "rows": "by row", "each": "one by one"}
    return ", ".join(f"{checks[key]} {name}" for key, name in names.items() if checks.get(key)) or "none"


def share_text(shape: dict[str, Any]) -> str:
    """Return the occupancy of launches of one grid; "" where it is not known, as of CUDA C++."""
    return f"{shape['occupancy']:.0%}" if "occupancy" in shape else ""


def page(arguments: Sequence[str], kernels: Sequence[dict[str, Any]]) -> str:
    """Return the page.

    Args:
        arguments: the program that was run.
        kernels: what :func:`torch_loom.tools.kernels.merged` returned.
    """
    title = shlex.join(arguments)
    seconds = sum(kernel["seconds"] for kernel in kernels)
    chip = kernels[0]["shapes"][0]["chip"] if kernels else ""
    cards = [
        ("kernels", str(len(kernels))),
        ("launches", str(sum(kernel["launches"] for kernel in kernels))),
        (f"time on {chip}, forecast", duration(seconds)),
        ("moved", size_text(round(sum(kernel["bytes"] for kernel in kernels)))),
    ]
    parts = [
        f"<!doctype html><html lang=en><meta charset=utf-8><title>kernels of {escape(title)}</title>",
        f"<meta name=viewport content='width=device-width'><style>{STYLE}{_STYLE}</style>",
        f"<h1>{escape(title)}</h1><p>its own kernels that it launched; times are the cost model's</p>",
        "<div class=cards>",
        *(
            f"<div class=card><b>{escape(value)}</b><span>{escape(name)}</span></div>"
            for name, value in cards
        ),
        "</div>",
        *(part for number, kernel in enumerate(kernels) for part in _kernel(number, kernel)),
    ]
    return "\n".join(parts)


def _kernel(number: int, kernel: dict[str, Any]) -> list[str]:
    constants = ", ".join(f"{name}={value}" for name, value in kernel["constants"].items())
    known = kernel["options"]
    names = ("num_warps", "num_stages", "launched at")
    options = ", ".join(f"{name}={known[name]}" for name in names if name in known)
    is_own = not kernel["generated"]  # CUDA C++, which is compiled as it is
    rows = []
    for shape in kernel["shapes"]:
        cells = [
            _grid_text(shape),
            str(shape["launches"]),
            duration(shape["seconds"]),
            size_text(round(shape["bytes"])),
        ]
        if not is_own:
            cells += [_count(shape["products"]), _count(shape["operations"])]
            cells += [share_text(shape), str(shape["waves"])]
        rows.append("<tr>" + "".join(f"<td class=n>{escape(cell)}</td>" for cell in cells) + "</tr>")
    columns = ["blocks of threads" if is_own else "programs", "launches", "time of one", "moved"]
    columns += [] if is_own else ["flops of products", "other operations", "occupancy", "waves"]
    head = "".join(f"<th class=n>{name}</th>" for name in columns)
    source = f"<b>source</b><pre>{_numbered(kernel['source'], kernel['line'])}</pre>"
    generated = f"<b>generated</b><pre>{_numbered(_indented(kernel['generated']), 1)}</pre>"
    place = f"{kernel['file']}:{kernel['line']}" if kernel["file"] else ""
    told = [place, constants, options, f"accesses checked: {checks_text(kernel)}"]
    return [
        f"<h2 id=k{number}>{escape(kernel['name'])}</h2>",
        f"<p>{escape('; '.join(filter(None, told)))}</p>",
        f"<table><tr>{head}</tr>{''.join(rows)}</table>",
        f"<div class=pair><div>{source}</div><div>{generated}</div></div>" if not is_own else source,
    ]


def _grid_text(shape: dict[str, Any]) -> str:
    grid = " x ".join(map(str, shape["grid"]))
    return f"{grid} of {' x '.join(map(str, shape['block']))}" if "block" in shape else grid


def _count(number: float) -> str:
    for name, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if number >= size:
            return f"{number / size:.3g} {name}"
    return f"{number:.0f}"


def _indented(text: str) -> str:
    lines, depth = [], 0
    for line in text.strip().splitlines():
        begin = depth - line.startswith("}")
        lines.append("  " * max(begin, 0) + line)
        depth += line.count("{") - line.count("}")
    return "\n".join(lines)


def _numbered(text: str, first: int) -> str:
    lines = text.rstrip("\n").split("\n")
    width = len(str(first + len(lines)))
    return "\n".join(
        f"<span class=no>{number:>{width}} </span>{escape(line)}" for number, line in enumerate(lines, first)
    )
