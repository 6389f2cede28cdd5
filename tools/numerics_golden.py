"""Writes small golden sets into tests/numerics/data: a part of each section of larger ones.

python -m tools.numerics_golden FOLDER

Their results are those of the larger sets: ttsim's for Tensix's instructions, a restatement of tt-llk and
tt-metal for functions and host conversion, MMA-Sim's for GPUs' instructions. None is computed here.
"""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.golden import tensix

DATA = Path(__file__).parent.parent / "tests" / "numerics" / "data" / "golden"
# Cases of each section that are kept, spread over all of them.
CASES = {"step": 12, "elw": 16, "pool": 12, "unpack": 15, "pack": 10}
ROWS, VALUES, WORDS = 4, 60, 32

Arrays = dict[str, Any]


def spread(count: int, wanted: int) -> list[int]:
    """So many places of a list, evenly."""
    return sorted({int(i * count / wanted) for i in range(min(count, wanted))})


def of_tensix(arrays: Arrays, index: dict[str, Any]) -> Arrays:
    kept: Arrays = {}
    for section, wanted in CASES.items():
        cases = arrays[f"{section}_case"]
        places = spread(len(cases), wanted)
        parts = [one_case(arrays, section, place) for place in range(len(cases))]
        for suffix in ("wh", "bh"):
            results = arrays.get(f"{section}_out_{suffix}")
            if results is None:
                continue
            if section == "unpack":
                results = results.reshape(-1, 1024)[:, ::WORDS].ravel()
            compute = tensix.SECTIONS[section]
            sizes = [compute(part, index, tensix.CHIPS.index(suffix)).size for part in parts]
            ends = np.cumsum(sizes)
            assert ends[-1] == results.size, (section, suffix)
            kept[f"{section}_out_{suffix}"] = np.concatenate(
                [results[ends[i] - sizes[i] : ends[i]] for i in places]
            )
        chosen = [parts[i] for i in places]
        for key in chosen[0]:
            if key.startswith(section) and "_out_" not in key:
                kept[key] = np.concatenate([part[key] for part in chosen])
        renumber(kept, section)
    for key, value in arrays.items():
        if key.startswith("sfpu_"):
            kept[key] = value[spread(len(value), VALUES)]
    rows = spread(arrays["host_in"].shape[0], WORDS)
    kept |= {"host_in": arrays["host_in"][rows], "host_case": arrays["host_case"]}
    kept["host_out"] = arrays["host_out"][:, rows]
    return kept


# Where a case of a section says which operands it has, and in which arrays they are.
OPERANDS: dict[str, dict[int, tuple[str, ...]]] = {
    "step": {0: ("step_A", "step_B"), 1: ("step_dst",)},
    "elw": {0: ("elw_A", "elw_B"), 1: ("elw_dst",)},
    "pool": {1: ("pool_A", "pool_B")},
}


def one_case(arrays: Arrays, section: str, place: int) -> Arrays:
    """The arrays of a section with one case alone."""
    case = arrays[f"{section}_case"][place : place + 1].copy()
    part: Arrays = {f"{section}_case": case}
    for column, names in OPERANDS.get(section, {}).items():
        at = int(case[0, column])
        part |= {name: arrays[name][at : at + 1] for name in names}
        case[0, column] = 0
    if section == "unpack":
        part |= {name: arrays[name][place : place + 1, ::WORDS] for name in ("unpack_in", "unpack_exp")}
    if section == "pack":
        before = arrays["pack_case"][:place].astype(np.int64)
        count = int(case[0, 7])
        at, at_old = int(before[:, 7].sum()), int(before[before[:, 4] != 0, 7].sum())
        part["pack_in"] = arrays["pack_in"][at * 16 : (at + count) * 16]
        part["pack_old"] = arrays["pack_old"][at_old * 16 : (at_old + count * int(case[0, 4] != 0)) * 16]
    return part


def renumber(kept: Arrays, section: str) -> None:
    for column in OPERANDS.get(section, {}):
        kept[f"{section}_case"][:, column] = np.arange(len(kept[f"{section}_case"]))


def of_functions(arrays: Arrays) -> Arrays:
    places = spread(len(arrays["x"]), 150)
    return {key: value[places] for key, value in arrays.items()}


def of_mma(arrays: Arrays, index: dict[str, Any]) -> tuple[Arrays, list[Any]]:
    kept: Arrays = {}
    seen: set[tuple[str, ...]] = set()
    cases = []
    # Special values and chains of each instruction, a few rows of the result.
    for case in index["cases"]:
        number, architecture, instruction, qualifier, values, _ = case
        key = (architecture, instruction, qualifier, values)
        if values not in ("special", "chain") or key in seen:
            continue
        seen.add(key)
        cases.append(case)
        for name in ("A", "B", "C", "D", "SA", "SB"):
            value = arrays.get(f"{number}_{name}")
            if value is None:
                continue
            rows = slice(None, ROWS)
            if name == "A":
                value = value[:, rows] if value.ndim == 3 else value[rows]
            elif name in ("C", "D", "SA"):
                value = value[rows]
            kept[f"{number}_{name}"] = value
    return kept, cases


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("folder", type=Path, help="where the larger sets lie")
    folder: Path = parser.parse_args().folder
    DATA.mkdir(exist_ok=True)
    read = {path.stem: dict(np.load(path)) for path in folder.glob("*_dev.npz")}
    told = {path.stem: json.loads(path.read_text()) for path in folder.glob("*_dev.json")}
    index = told["tensix_dev"]
    found = of_tensix(read["tensix_dev"], index)
    sections = {"pack": {"blackhole_only_modes": index["sections"]["pack"].get("blackhole_only_modes", [])}}
    # Which sections Blackhole computes as Wormhole.
    counts = {name: [0, 0] for name in index["counts"]}
    write("tensix_small", found, {"source": index["source"], "sections": sections, "counts": counts})
    write("tensix_fn_small", of_functions(read["tensix_fn_dev"]), None)
    arrays, cases = of_mma(read["mma_dev"], told["mma_dev"])
    write("mma_small", arrays, {"source": told["mma_dev"]["source"], "cases": cases})


def write(name: str, arrays: Arrays, index: dict[str, Any] | None) -> None:
    np.savez_compressed(DATA / f"{name}.npz", **arrays)
    if index is not None:
        (DATA / f"{name}.json").write_text(json.dumps(index) + "\n")
    print(name, sum(value.size for value in arrays.values()), (DATA / f"{name}.npz").stat().st_size)


if __name__ == "__main__":
    main()
