"""`loom chips fit` with a file of collectives alone: protocols by fabric, as `collectives.json` has them."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray
from rich.table import Table
from rich.text import Text

from torch_loom import chips
from torch_loom.chips import fit_checks, topologies
from torch_loom.chips.chip import given
from torch_loom.chips.collectives import FABRICS, protocols
from torch_loom.chips.fit_collectives import LEAST_ROWS, Fit, Row, fit_fabrics, forecasts, routed
from torch_loom.config.files import whole_file
from torch_loom.errors import ChipError, TopologyError
from torch_loom.tools import console

PAIRED = "pairwise"
"""What a file says of its cards where links join two each."""


def fit_protocols(path: Path, device: str, base: str, out: Path, name: str | None) -> list[dict[str, Any]]:
    """Fit the protocols of the fabrics that a file's collectives went by, print and write them.

    Half of the rows are fitted, by a hash of what each timed; the others say how far off the fit is.

    Args:
        base: the topology of the cluster, or the chip where all ranks stand on one node.

    Raises:
        ChipError: other cards, another unit, or rows whose way is not known.
    """
    if name is not None:
        raise ChipError(f"--name {name}: protocols of collectives have no name. Allowed: leave --name out.")
    if out.suffix != ".json":
        raise ChipError(
            f"--out {out}: {path} has collectives alone, whose protocols are written as JSON. Allowed: a "
            f"name that ends in .json."
        )
    chip, topology = _base(base)
    fit_checks.check_cards(path, device, chip, topology.name if topology else "")
    stem = path.stem.removesuffix("_collectives")
    content = json.loads(path.read_bytes())["ops"]
    rows = routed(content, stem, chip, topology, PAIRED in device.lower())
    left_out = len(content) - len(rows)
    if left_out:
        text = f"{left_out} rows are left out: they cross nodes. Give the topology that joins them as --base."
        if topology is not None and topology.nics_per_node:
            text = f"{left_out} rows are left out: by what they went is not known."
        console.out.print(Text(text, style="yellow"), soft_wrap=True)
    if not rows:
        raise ChipError(
            f"{path}: of no row it is known how {base!r} would do it. Allowed: a chip with links, or the "
            f"topology that joins its nodes, as the base: {', '.join(topologies.available())}."
        )
    shipped = forecasts(protocols(), rows)
    timed = [
        fit_checks.Timed(row.source, _named(content[row.number], row), row.took_ns, expected)
        for row, expected in zip(rows, shipped.tolist(), strict=True)
    ]
    fit_checks.check_times(path, timed, repr(base))
    found = fit_fabrics(rows)
    final = {
        fabric: found[fabric].protocols if fabric in found else protocols()[fabric] for fabric in FABRICS
    }
    took = forecasts(final, rows)
    console.out.print(_figures(found, rows))
    console.out.print()
    console.out.print(_errors(rows, took))
    written = {
        "source": f"loom chips fit: half of {len(rows)} timings of {path.name}; {_kept(found)}",
        "protocols": {fabric: [each._asdict() for each in final[fabric]] for fabric in FABRICS},
    }
    with whole_file(out) as unfinished:
        unfinished.write_text(json.dumps(written, indent=1) + "\n", encoding="utf-8")
    return _residuals(content, rows, took)


def _base(base: str) -> tuple[chips.Chip, topologies.Topology | None]:
    """Return the chip and topology that a base names: that of a topology, or the chip alone."""
    is_cluster = base in topologies.available() or (
        base.endswith(".toml") and "devices_per_node" in given(base)
    )
    if not is_cluster:
        return chips.load(base), None
    try:
        topology = topologies.load(base)
    except TopologyError as error:
        raise ChipError(str(error)) from None
    return chips.load(topology.chip), topology


def _named(content: Mapping[str, Any], row: Row) -> str:
    ranks, size_bytes = content["shape"]
    return f"{content['op']} of {size_bytes} bytes over {ranks} ranks (ops[{row.number}])"


def _kept(found: Mapping[str, Fit]) -> str:
    others = [fabric for fabric in FABRICS if fabric not in found]
    return f"as shipped: {', '.join(others)}" if others else "every fabric"


def _untold(fabric: str, number: int, name: str, value: float) -> str:
    is_shipped = getattr(protocols()[fabric][number - 1], name) == value
    return f"not told by the data: {'kept as shipped' if is_shipped else 'the shipped one is too fast'}"


def _figures(found: Mapping[str, Fit], rows: Sequence[Row]) -> Table:
    """Return the table of fitted figures, and by how many rows each is told."""
    table = Table(box=None, pad_edge=False)
    for heading in ("fabric", "figure", "value", "told by"):
        table.add_column(heading, justify="right" if heading == "value" else "left", no_wrap=True)
    for fabric in FABRICS:
        mine = [row for row in rows if row.route.fabric == fabric]
        count = sum(row.is_fitted for row in mine)
        if fabric not in found:
            few = f"{count} rows, fewer than {LEAST_ROWS}" if mine else "no row"
            table.add_row(Text(fabric, style="bold"), "", "", f"{few}: kept as shipped")
            continue
        fit, peaks = found[fabric], [row.route.gbps for row in mine]
        span = f"{min(peaks):g}" if min(peaks) == max(peaks) else f"{min(peaks):g} to {max(peaks):g}"
        table.add_row(Text(fabric, style="bold"), f"links of {span} GB/s", "", f"{count} rows fitted")
        for number, (protocol, told) in enumerate(zip(fit.protocols, fit.told, strict=True), 1):
            for name, value in protocol._asdict().items():
                by = f"{told[name]} rows" if told[name] else _untold(fabric, number, name, value)
                table.add_row("", f"{number}. {name}", f"{value:g}", by)
    return table


def _errors(rows: Sequence[Row], took: NDArray[np.float64]) -> Table:
    """Return the table of errors of both halves, by op and ranks."""
    table = Table(box=None, pad_edge=False)
    for heading in ("collective, ranks x on a node", "fitted", "error", "left out", "error", "worst"):
        table.add_column(heading, justify="left" if heading.startswith("coll") else "right")
    errors = np.abs(took / np.array([row.took_ns for row in rows]) - 1.0)
    halves = np.array([row.is_fitted for row in rows])
    sources = np.array([row.source for row in rows])
    for source in [*dict.fromkeys(sources.tolist()), "all"]:
        mine = (sources == source) | (source == "all")
        fitted, others = errors[mine & halves], errors[mine & ~halves]
        table.add_row(source, *_of(fitted), *_of(others), f"{others.max():.1%}" if len(others) else "")
    return table


def _of(errors: NDArray[np.float64]) -> tuple[str, str]:
    return str(len(errors)), f"{errors.mean():.1%}" if len(errors) else ""


def _residuals(
    content: Sequence[Mapping[str, Any]], rows: Sequence[Row], took: NDArray[np.float64]
) -> list[dict[str, Any]]:
    """Return the rows of a residual report; those whose way is not known have no forecast."""
    by_number = {row.number: (row, said) for row, said in zip(rows, took.tolist(), strict=True)}
    found = []
    for number, each in enumerate(content):
        row, said = by_number.get(number, (None, None))
        use = "left out: by what it went is not known"
        if row is not None:
            use = "fitted" if row.is_fitted else "left out: the half that says how far off the fit is"
        found.append(
            {
                "row": number,
                "op": each["op"],
                "shape": each["shape"],
                "dtype": each["dtype"],
                "measured_ms": each.get("device_ms") or each["ms"],
                "forecast_ms": None if said is None else said * 1e-6,
                "error": None if said is None or row is None else said / row.took_ns - 1.0,
                "use": use,
            }
        )
    return found
