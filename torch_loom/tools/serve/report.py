"""What came of a trace: as JSON takes it, as a table, as a page."""

from __future__ import annotations

from html import escape
from typing import Any

from torch_loom.chips import uncertainty
from torch_loom.image.report import duration
from torch_loom.tools.plan_page import BOTTOM, HEIGHT, LEFT, STYLE, WIDTH
from torch_loom.tools.plan_text import size_text
from torch_loom.tools.serve.requests import percentiles
from torch_loom.tools.serve.schedule import Outcome
from torch_loom.tools.serve.steps import Memory

TIMES = {
    "queue_seconds": "wait until it is taken up",
    "first_token_seconds": "time to first token",
    "token_seconds": "time per output token",
    "request_seconds": "time of a request",
}
LINES = {"running": "#3b6fb6", "waiting": "#e08a3c", "cache": "#4fa077"}


def summary(model: str, chip: str, schedule: str, outcome: Outcome, memory: Memory) -> dict[str, Any]:
    """Return what came of a trace; memory is in bytes, time in seconds.

    ``token_seconds`` is of requests of two tokens or more: from the first to the last, for each after it.
    """
    served = outcome.served
    lists = {
        "queue_seconds": [(each.started or 0.0) - each.request.arrival for each in served],
        "first_token_seconds": [each.first - each.request.arrival for each in served],
        "token_seconds": [(each.ended - each.first) / (each.made - 1) for each in served if each.made > 1],
        "request_seconds": [each.ended - each.request.arrival for each in served],
    }
    new = sum(each.made for each in served)
    prompts = sum(each.request.prompt_tokens for each in served)
    began = min(each.request.arrival for each in served)
    took = outcome.seconds - began
    range_ = uncertainty.ranges()[uncertainty.TRANSFORMERS]
    return {
        "model": model,
        "chip": chip,
        "schedule": schedule,
        "requests": len(served),
        "prompt_tokens": prompts,
        "new_tokens": new,
        "seconds": took,
        "new_tokens_per_second": new / took,
        "tokens_per_second": (new + prompts) / took,
        "requests_per_second": len(served) / took,
        "busy": outcome.busy_seconds / took,
        "steps": outcome.steps,
        "peak_requests": outcome.peak_requests,
        "evictions": outcome.evictions,
        "times": {name: percentiles(values) for name, values in lists.items() if values},
        # Of each step; how long requests wait follows from it.
        "interval": {"share": uncertainty.SHARE, "low": range_.low, "high": range_.high},
        "memory": {
            **memory._asdict(),
            "cache_bytes": memory.cache_tokens * memory.token_bytes,
            "peak_cache_bytes": outcome.peak_tokens * memory.token_bytes,
        },
        "over_time": [list(each) for each in outcome.samples],
    }


def _figures(found: dict[str, Any]) -> dict[str, str]:
    memory = found["memory"]
    return {
        "new tokens a second": f"{found['new_tokens_per_second']:,.1f}",
        "requests a second": f"{found['requests_per_second']:,.2f}",
        "time of the trace": duration(found["seconds"]),
        "device in use": f"{found['busy']:.0%}",
        "requests at a time, at most": f"{found['peak_requests']:,}",
        "weights": size_text(memory["weight_bytes"]),
        "cache in use, at most": size_text(memory["peak_cache_bytes"]),
        "room for the cache": size_text(memory["cache_bytes"]),
        "a token in the cache": size_text(memory["token_bytes"]),
    }


def _interval(found: dict[str, Any]) -> str:
    interval = found["interval"]
    return (
        f"{interval['share']:.0%} likely: a step takes {interval['low']:.2f} to {interval['high']:.2f} times "
        "as long on the card, as transformer steps of cards that were measured"
    )


def _evictions(found: dict[str, Any]) -> str:
    if not found["evictions"]:
        return ""
    return f"the cache ran out: requests lost their place {found['evictions']:,} times and began anew"


def show(found: dict[str, Any]) -> None:
    """Print it."""
    from rich.markup import escape as plain
    from rich.table import Table

    from torch_loom.tools import console

    print_ = console.out.print
    print_(
        f"[bold]{plain(found['model'])}[/bold] on {plain(found['chip'])}, {found['schedule']}: "
        f"{found['requests']:,} requests, {found['prompt_tokens']:,} tokens in, {found['new_tokens']:,} out",
        highlight=False,
    )
    print_(_interval(found), style="dim", highlight=False)
    table = Table("", "mean", "p50", "p90", "p99")
    for name, values in found["times"].items():
        table.add_row(TIMES[name], *(duration(value) for value in values.values()))
    print_(table)
    table = Table("serving", "")
    for name, text in _figures(found).items():
        table.add_row(name, text)
    print_(table)
    if text := _evictions(found):
        print_(f"[bold yellow]note:[/bold yellow] {text}", highlight=False)


def page(found: dict[str, Any]) -> str:
    """Return it as a page: one HTML file with its picture in it, for a browser without a network."""
    title = f"{found['model']} on {found['chip']}"
    rows = "".join(
        f"<tr><td>{TIMES[name]}</td>"
        + "".join(f"<td class=n>{duration(each)}</td>" for each in values.values())
        for name, values in found["times"].items()
    )
    cards = "".join(
        f"<div class=card><b>{escape(text)}</b><span>{name}</span></div>"
        for name, text in _figures(found).items()
    )
    keys = "".join(
        f"<span class=key style='background:{colour}'></span>{name}" for name, colour in LINES.items()
    )
    bad = f"<p class=bad>{text}</p>" if (text := _evictions(found)) else ""
    return (
        f"<!doctype html><html lang=en><meta charset=utf-8><title>serving {escape(title)}</title>"
        f"<meta name=viewport content='width=device-width'><style>{STYLE}</style><h1>{escape(title)}</h1>"
        f"<p>{found['schedule']}, {found['requests']:,} requests, planned without the chip</p>"
        f"<div class=cards>{cards}</div><p>{escape(_interval(found))}</p>{bad}"
        f"<h2>Times</h2><table><tr><th></th><th class=n>mean</th><th class=n>p50</th><th class=n>p90</th>"
        f"<th class=n>p99</th></tr>{rows}</table>"
        f"<h2>Requests and cache over time</h2>{_picture(found)}<p>{keys}, of their highest</p></html>\n"
    )


def _picture(found: dict[str, Any]) -> str:
    samples = found["over_time"]
    last = max(each[0] for each in samples) or 1.0
    width, height = WIDTH - LEFT - 10, HEIGHT - BOTTOM - 20
    lines = []
    for column, (name, colour) in enumerate(LINES.items(), 1):
        most = max(each[column] for each in samples) or 1
        points = " ".join(
            f"{LEFT + each[0] / last * width:.1f},{20 + height * (1 - each[column] / most):.1f}"
            for each in samples
        )
        lines.append(f"<polyline points='{points}' fill=none stroke='{colour}' stroke-width=1.6 />")
        text = size_text(most * found["memory"]["token_bytes"]) if name == "cache" else f"{most:,}"
        lines.append(f"<text x=4 y={20 + 18 * column} style='fill:{colour}'>{text}</text>")
    ticks = "".join(
        f"<text x={LEFT + width * share:.0f} y={HEIGHT - 8} text-anchor=middle>"
        f"{duration(last * share)}</text>"
        for share in (0.25, 0.5, 0.75)
    )
    return f"<svg viewBox='0 0 {WIDTH} {HEIGHT}'>{''.join(lines)}{ticks}</svg>"
