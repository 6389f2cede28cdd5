"""Fits the protocols of collectives to timings of them: what `loom chips fit` does with files of these alone.

A row is an op, ``[ranks, bytes]``, what it took, and how many of the ranks stand on one node
(``devices_per_node``; all of them where it is left out).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from torch_loom.chips import topologies
from torch_loom.chips.chip import Chip
from torch_loom.chips.collectives import FABRICS, Protocol, Route, protocols, route_of
from torch_loom.chips.cost.fit import LEAST_SLOPE, LEAST_TIMINGS, levenberg
from torch_loom.chips.cost.sweep import is_fitted
from torch_loom.chips.fitted import rounded
from torch_loom.errors import ChipError

# Beyond this error a row counts linearly: NCCL chooses among more protocols than are told apart here.
ROBUST = 0.04
# A share of a time that is nothing.
LEAST_CHANGE = 1e-3
# Nanoseconds that are nothing; of a share, which divides, something is left.
LEAST, LEAST_SHARE = 0.1, 1e-3
# Fewer rows than a protocol has figures show none.
LEAST_ROWS = len(Protocol._fields)
# Of each fabric: where the fit begins. One protocol for short collectives, one or two for long ones.
STARTS = {
    "switched": (
        Protocol(12e3, 300.0, 0.1),
        Protocol(30e3, 800.0, 0.4, 5e3, 1e4),
        Protocol(38e3, 1200.0, 0.8, 4e5, 8e5),
    ),
    "mesh": (Protocol(10e3, 3e3, 0.5), Protocol(15e3, 5e3, 0.9, 1e4, 1e5)),
    "message": (Protocol(12e3, 1.0, 0.9, 1e4, 1e5),),
    "network": (Protocol(40e3, 2e4, 0.25), Protocol(100e3, 5e4, 0.45, 1e5, 1e6)),
    "network_message": (Protocol(25e3, 1.0, 0.5), Protocol(50e3, 1.0, 0.62, 1e5, 1e6)),
}


class Row(NamedTuple):
    """A collective that was timed, by what it went, and whether it is fitted.

    Attributes:
        source: the rows that it stands beside: file, op, ranks and how many on a node.
        number: of the row in its file.
    """

    source: str
    route: Route
    took_ns: float
    is_fitted: bool
    number: int = 0


class Fit(NamedTuple):
    """The protocols of a fabric, and of each protocol how many rows tell each of its figures; 0: none."""

    protocols: tuple[Protocol, ...]
    told: tuple[Mapping[str, int], ...]


def routed(
    rows: Sequence[Mapping[str, Any]],
    name: str,
    chip: Chip,
    topology: topologies.Topology | None = None,
    in_pairs: bool = False,
) -> list[Row]:
    """Return the rows whose way is known; those of nodes that no topology joins are left out.

    Args:
        rows: of a file.
        name: of the file.
        in_pairs: links join two chips each; pairs meet over PCIe.

    Raises:
        ChipError: a row has ranks that cannot stand so.
    """
    found = []
    for number, row in enumerate(rows):
        ranks, size_bytes = row["shape"]
        on_node = row.get("devices_per_node", ranks)
        _check_ranks(f"{name}: ops[{number}]", ranks, on_node)
        key = f"{name}:{row['op']}:{ranks}:{on_node}:{size_bytes}"
        layout = topologies.Layout(ranks)
        if on_node != ranks:
            if topology is None or not topology.nics_per_node:
                continue
            nics = min(topology.nics_per_node, on_node)
            layout = topologies.Layout(ranks, ranks // on_node, on_node, nics, topology.nic_gbps)
        route = route_of(chip, "send" if row["op"] == "send_recv" else row["op"], size_bytes, layout)
        if route is None:
            continue
        if in_pairs and on_node == ranks > 2:
            # As chips with few links do.
            route = route._replace(fabric="mesh", gbps=chip.host_link_gbps)
        source = f"{name} {row['op']} {ranks}x{on_node}"
        took_ms = row.get("device_ms") or row["ms"]
        found.append(Row(source, route, took_ms * 1e6, is_fitted(key), number))
    return found


def _check_ranks(where: str, ranks: int, on_node: object) -> None:
    if ranks < 2:
        raise ChipError(f"{where}: shape = [{ranks}, …]: a collective of one rank. Allowed: 2 ranks or more.")
    is_whole = isinstance(on_node, int) and not isinstance(on_node, bool)
    if not is_whole or not 1 <= on_node <= ranks or ranks % on_node:  # type: ignore[operator]
        raise ChipError(
            f"{where}: devices_per_node = {on_node!r:.100}. Allowed: a whole number, 1 to {ranks}, "
            f"that divides the {ranks} ranks of the row."
        )


def forecast(found: Sequence[Protocol], rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return nanoseconds for each row, of one fabric."""
    # A protocol's time goes by vectors, too.
    figures: list[Any] = [np.array([getattr(row.route, name) for row in rows]) for name in Route._fields[1:]]
    return np.asarray(np.min([each.time_ns(*figures) for each in found], axis=0))


def forecasts(found: Mapping[str, Sequence[Protocol]], rows: Sequence[Row]) -> NDArray[np.float64]:
    """Return nanoseconds for each row, of any fabric."""
    took = np.zeros(len(rows))
    for fabric in FABRICS:
        places = [place for place, row in enumerate(rows) if row.route.fabric == fabric]
        if places:
            took[places] = forecast(found[fabric], [rows[place] for place in places])
    return took


def fit(start: Sequence[Protocol], rows: Sequence[Row]) -> tuple[Protocol, ...]:
    """Return the protocols of a fabric that the rows show."""
    took = np.log(np.array([row.took_ns for row in rows]))
    width = len(Protocol._fields)
    # A source of few rows counts nearly as one of many.
    counts = Counter(row.source for row in rows)
    weights = np.array([(len(rows) / len(counts) / counts[row.source]) ** 0.2 for row in rows])

    def protocols_of(vector: Any) -> list[Protocol]:
        found = [Protocol(*np.exp(part)) for part in vector.reshape(-1, width)]
        return [each._replace(link_share=min(each.link_share, 1.0)) for each in found]

    def residuals(vector: Any) -> Any:
        errors = np.log(forecast(protocols_of(vector), rows)) - took
        size = np.abs(errors)
        robust = np.sqrt(ROBUST * (2 * np.maximum(size, ROBUST) - ROBUST))
        return weights * np.where(size > ROBUST, np.sign(errors) * robust, errors)

    begin = np.log(np.maximum(np.array(start, dtype=float), 1e-3)).ravel()
    best = min(
        (levenberg(residuals, begin + shift, steps=80) for shift in _shifts(len(begin))),
        key=lambda each: each[1],
    )
    # What no row shows has gone towards zero.
    return tuple(
        Protocol(*(rounded(value) if value >= LEAST else 0.0 for value in each))._replace(
            link_share=rounded(max(each.link_share, LEAST_SHARE)),
            ramp_ns_of_links=max(1.0, rounded(each.ramp_ns_of_links)),
        )
        for each in protocols_of(best[0])
    )


def _shifts(size: int) -> list[Any]:
    random = np.random.default_rng(0)
    return [np.zeros(size), *(random.normal(0.0, 0.4, size) for _ in range(11))]


def fit_fabrics(rows: Sequence[Row]) -> dict[str, Fit]:
    """Return the protocols of the fabrics that occur, fitted to the rows that are to be fitted.

    A figure that fewer than ``LEAST_TIMINGS`` rows tell stays as it is shipped, unless a row would be faster
    by it than by what was fitted; so does a fabric of which there are fewer than ``LEAST_ROWS``.
    """
    found = {}
    for fabric, start in STARTS.items():
        mine = [row for row in rows if row.route.fabric == fabric and row.is_fitted]
        if len(mine) >= LEAST_ROWS:
            found[fabric] = _kept(fit(start, mine), start, protocols()[fabric], mine)
    return found


def _kept(
    found: Sequence[Protocol], start: Sequence[Protocol], shipped: Sequence[Protocol], rows: Sequence[Row]
) -> Fit:
    """Return the fitted protocols, what no row tells as it is shipped, where that contradicts no row.

    The fastest protocol counts. So rows tell of one that none of them went by how slow it is at least, and
    figures of other cards may be faster than that.
    """
    at_start = told_by(start, rows)
    told = [
        {name: max(count, before[name]) for name, count in counts.items()}
        for counts, before in zip(told_by(found, rows), at_start, strict=True)
    ]
    told = [{name: n if n >= LEAST_TIMINGS else 0 for name, n in counts.items()} for counts in told]
    kept = [*found]
    for number, (each, other, counts) in enumerate(zip(found, shipped, told, strict=True)):
        before = forecast(kept, rows)
        kept[number] = each._replace(
            **{name: getattr(other, name) for name, count in counts.items() if not count}
        )
        if (forecast(kept, rows) < before * (1 - LEAST_CHANGE)).any():
            kept[number] = each
    return Fit(tuple(kept), tuple(told))


def told_by(found: Sequence[Protocol], rows: Sequence[Row]) -> list[dict[str, int]]:
    """Return, for each figure of each protocol, how many rows' times change enough with it."""
    base, counts = forecast(found, rows), []
    for number, each in enumerate(found):
        own = {}
        for name in Protocol._fields:
            more = [*found]
            more[number] = each._replace(**{name: getattr(each, name) * 1.1})
            slope = np.abs(np.log(forecast(more, rows) / base)) / np.log(1.1)
            own[name] = int((slope >= LEAST_SLOPE).sum())
        counts.append(own)
    return counts
