"""The reports as pages: one file each, that needs no other and no network."""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING

from torch_loom.numerics.reports.plot import Axis, Mark, Series, linear_axis, log_axis, plot

if TYPE_CHECKING:
    from torch_loom.numerics.reports.compare import LayerErrors
    from torch_loom.numerics.reports.search import LayerChoice, Point
    from torch_loom.numerics.reports.statistics import Errors, Format

_STYLE = """
:root { color-scheme: light dark; --ink: #1d2430; --soft: #667085; --line: #e4e7ec; --page: #f7f8fa;
  --card: #fff;
  --c0: #2563eb; --c1: #d97706; --c2: #dc2626; --c3: #059669; --c4: #7c3aed; --c5: #0891b2;
  --c6: #64748b; }
@media (prefers-color-scheme: dark) { :root { --ink: #e6e9ef; --soft: #98a2b3; --line: #2b3240;
  --page: #10141b;
  --card: #181d26; --c0: #60a5fa; --c1: #fbbf24; --c2: #f87171; --c3: #34d399; --c4: #a78bfa;
  --c5: #22d3ee; --c6: #94a3b8; } }
* { box-sizing: border-box; }
body { margin: 0; background: var(--page); color: var(--ink); font: 14px/1.5 system-ui, sans-serif; }
main { max-width: 1040px; margin: 0 auto; padding: 32px 20px 64px; }
h1 { font-size: 24px; margin: 0 0 4px; letter-spacing: -0.01em; } h2 { font-size: 15px;
  margin: 0 0 12px; }
p { color: var(--soft); margin: 0 0 20px; max-width: 72ch; }
section { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 20px;
  margin: 0 0 20px; }
.cards { display: grid; grid-template-columns: repeat(auto-fit, minmax(180px, 1fr)); gap: 12px;
  margin: 0 0 20px; }
.card { background: var(--card); border: 1px solid var(--line); border-radius: 10px; padding: 14px 16px; }
.card b { display: block; font-size: 22px; font-variant-numeric: tabular-nums; }
  .card span { color: var(--soft); }
section { overflow-x: auto; }
svg { width: 100%; min-width: 560px; height: auto; display: block; }
  svg text { fill: var(--soft); font-size: 12px; }
svg .grid { stroke: var(--line); } svg .axis { stroke: var(--soft); }
svg .level { stroke: var(--soft); stroke-dasharray: 5 4; } svg .line { fill: none; stroke-width: 2;
  stroke-linejoin: round; }
svg circle { stroke: var(--card); stroke-width: 1; } svg .refused { fill-opacity: 0.25; }
  svg circle:hover { stroke: var(--ink); }
svg .chosen { stroke: var(--ink); stroke-width: 2; }
.legend { display: flex; flex-wrap: wrap; gap: 16px; margin: 0 0 8px; color: var(--soft); }
.tag, .legend span { white-space: nowrap; }
.tag i, .legend i { display: inline-block; width: 10px; height: 10px; border-radius: 3px; margin-right: 6px; }
.scroll { overflow-x: auto; } table { border-collapse: collapse; width: 100%;
  font-variant-numeric: tabular-nums; }
th { text-align: right; font-weight: 600; color: var(--soft); } td { text-align: right; }
th, td { padding: 6px 10px; border-bottom: 1px solid var(--line); white-space: nowrap; }
th:first-child, td:first-child { text-align: left; } td.word, th.word { text-align: left; }
td .track { display: inline-block; width: 92px; margin-left: 10px; text-align: left; }
td .bar { display: inline-block; height: 8px; border-radius: 4px; vertical-align: middle; }
code { font: 13px ui-monospace, monospace; }
"""
_NUM_COLORS = 7


def _colors() -> str:
    rules = [
        f"polyline.c{i} {{ stroke: var(--c{i}); }} circle.c{i} {{ fill: var(--c{i}); }} "
        f".b{i} {{ background: var(--c{i}); }}"
        for i in range(_NUM_COLORS)
    ]
    return "\n".join(rules)


def _page(title: str, text: str, body: Iterable[str]) -> str:
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{html.escape(title)}</title>'
        '<meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{_STYLE}{_colors()}</style></head><body><main><h1>{html.escape(title)}</h1><p>{html.escape(text)}</p>"
        f"{''.join(body)}</main></body></html>\n"
    )


def _cards(cards: Iterable[tuple[str, str]]) -> str:
    inner = "".join(
        f'<div class="card"><span>{html.escape(name)}</span><b>{value}</b></div>' for name, value in cards
    )
    return f'<div class="cards">{inner}</div>'


def _legend(names: Iterable[tuple[str, int]]) -> str:
    inner = "".join(f'<span><i class="b{color}"></i>{html.escape(name)}</span>' for name, color in names)
    return f'<div class="legend">{inner}</div>'


def _tag(fmt: Format, color: int) -> str:
    return f'<span class="tag"><i class="b{color}"></i>{fmt.name}</span>'


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]], words: int) -> str:
    """A table whose first columns, `words` of them, are words and the others numbers."""

    def cells(tag: str, values: Sequence[str]) -> str:
        return "".join(
            f"<{tag}{' class=word' if number < words else ''}>{value}</{tag}>"
            for number, value in enumerate(values)
        )

    body = "".join(f"<tr>{cells('td', row)}</tr>" for row in rows)
    head = f"<thead><tr>{cells('th', heads)}</tr></thead>"
    return f'<div class="scroll"><table>{head}<tbody>{body}</tbody></table></div>'


def _color_of(formats: Iterable[Format]) -> dict[Format, int]:
    return {fmt: number % _NUM_COLORS for number, fmt in enumerate(dict.fromkeys(formats))}


def comparison_page(model: str, layers: Sequence[LayerErrors], outputs: Mapping[Format, Errors]) -> str:
    """Return the page of a comparison."""
    colors = _color_of(outputs)
    errors = [each.errors.relative for each in layers]
    y = log_axis("relative error", errors)
    depth = max((each.depth for each in layers), default=0)
    x = linear_axis("layer, in the order in which they run", [0, max(1, depth)], whole=True)
    series = []
    for fmt, color in colors.items():
        own = sorted((each for each in layers if each.format is fmt), key=lambda each: each.depth)
        marks = [
            Mark(
                each.depth,
                max(each.errors.relative, y.low),
                f"{each.layer or 'the model'} ({each.kind}), {fmt.name}: "
                f"relative error {each.errors.relative:.2e}, PCC {each.errors.pcc:.6f}",
            )
            for each in own
        ]
        series.append(Series(color, marks))
    rows = [
        (
            f"<code>{html.escape(each.layer or '(model)')}</code>",
            html.escape(each.kind),
            _tag(each.format, colors[each.format]),
            f"{each.errors.pcc:.6f}",
            f"{each.errors.relative:.2e}",
            f"{each.errors.largest:.2e}",
            f"{each.errors.saturated:.2%}",
            f"{each.errors.flushed:.2%}",
        )
        for each in layers
    ]
    heads = ("Layer", "Kind", "Format", "PCC", "Relative error", "Largest error", "Saturated", "Flushed")
    return _page(
        f"Formats of {model} compared" if model else "Formats compared",
        "Each layer's output in each format against float32: errors of a layer contain those of the layers "
        "before it. Saturated and flushed are the shares of the float32 output that the format cuts off or "
        "turns to zero.",
        [
            _cards((f"{fmt.name}: PCC of the output", f"{each.pcc:.6f}") for fmt, each in outputs.items()),
            f"<section><h2>Error by depth</h2>{_legend((fmt.name, color) for fmt, color in colors.items())}",
            plot("Relative error of each layer, by depth, for each format", x, y, series),
            "</section><section><h2>Layers, worst first</h2>",
            _table(heads, rows, 3),
            "</section>",
        ],
    )


def search_page(
    model: str,
    layers: Sequence[LayerChoice],
    points: Sequence[Point],
    frontier: Sequence[Point],
    budget: float,
    score: float,
    num_bytes: int,
    unconverted: str,
) -> str:
    """Return the page of a search."""
    colors = _color_of(
        [points[0].format, *(each.format for each in points), *(each.format for each in layers)]
    )
    best = max(each.score for each in points)
    y = _score_axis([each.score for each in points] + [budget], best)
    x = linear_axis("bytes of packed weights", [float(each.bytes) for each in points], bytes_=True)
    tried = [
        Mark(
            each.bytes,
            each.score,
            f"{each.changed or 'all layers'} in {each.format.name}: {each.bytes:,} bytes, "
            f"score {each.score:.6f}{'' if each.taken else ', below the budget'}",
            "dot" if each.taken else "refused",
        )
        for each in points
    ]
    chosen = Mark(num_bytes, score, f"chosen: {num_bytes:,} bytes, score {score:.6f}", "chosen")
    series = [
        Series(0, [Mark(each.bytes, each.score, "frontier") for each in frontier]),
        Series(6, tried, has_line=False),
        Series(3, [chosen], has_line=False),
    ]
    most = max((each.bytes for each in layers), default=1)
    rows = [
        (
            f"<code>{html.escape(each.layer or '(model)')}</code>",
            _tag(each.format, colors[each.format]),
            f'{each.bytes:,}<span class="track"><span class="bar b{colors[each.format]}" '
            f'style="width:{1 + 90 * each.bytes // max(1, most)}px"></span></span>',
            ", ".join(f"{fmt.name} {value:.6f}" for fmt, value in each.sensitivity.items()),
        )
        for each in layers
    ]
    widest = points[0]
    return _page(
        f"Formats of {model} searched" if model else "Formats searched",
        f"A format for each layer, with a score of at least {budget:g}. Each point is an assignment that was "
        "tried; pale ones broke the budget. The line is the frontier: nothing smaller scored better.",
        [
            _cards(
                [
                    ("Bytes of weights", f"{num_bytes:,}"),
                    (f"of all in {widest.format.name}", f"{num_bytes / max(1, widest.bytes):.0%}"),
                    ("Score", f"{score:.6f}"),
                    ("Budget", f"{budget:g}"),
                ]
            ),
            f"<section><h2>Size and score</h2>{_legend([('frontier', 0), ('tried', 6), ('chosen', 3)])}",
            plot(
                "Score against bytes of weights of every assignment tried",
                x,
                y,
                series,
                level=(budget, "budget"),
            ),
            "</section><section><h2>Layers</h2>",
            _table(("Layer", "Format", "Bytes", "Score with this layer alone narrowed"), rows, 2),
            f"<p>Not converted: {html.escape(unconverted)}</p>" if unconverted else "",
            "</section>",
        ],
    )


def _score_axis(scores: Sequence[float], best: float) -> Axis:
    # Scores far below the budget would leave no room for those around it: they are put at the edge.
    low = max(min(scores), best - 4 * max(1e-6, best - scores[-1]))
    return linear_axis("score", [low, best])
