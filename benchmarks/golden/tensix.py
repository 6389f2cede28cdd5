"""Sets of Tensix's instructions: ``tensix_*``. Sections have results on Wormhole (wh) and Blackhole (bh)."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from torch import Tensor

from benchmarks.golden.sections import Array, Result, bits, compared, from_bits, joined
from torch_loom.numerics._ops import ops

Arrays = Mapping[str, Array]
Index = Mapping[str, Any]
Compute = Callable[[Arrays, Index, int], Array]

CHIPS = ("wh", "bh")
BLOCKS = {2: 7, 3: 3, 11: 1, 6: 7, 7: 3, 15: 1}  # formats of blocks and their magnitude bits
SHORT = (1, 2, 3, 10, 11, 26)  # formats with exponents of 5 bits
INT32 = 3
BLACKHOLE = 1


def _cases(arrays: Arrays, section: str) -> list[list[int]]:
    return [[int(value) for value in case] for case in arrays[f"{section}_case"]]


def _dst(is_wide: int, is_integer: int, source_format: int) -> int:
    if is_integer:
        return INT32
    return 2 if is_wide else int(source_format in SHORT)


def _step(arrays: Arrays, index: Index, chip: int) -> Array:
    done = []
    for matrix, start, a_format, b_format, is_wide, is_integer, _, phase in _cases(arrays, "step"):
        b, a, old = (
            bits(arrays[f"step_{name}"][at]) for name, at in (("B", matrix), ("A", matrix), ("dst", start))
        )
        dst = _dst(is_wide, is_integer, a_format)
        done.append(ops.tensix_matmul(b, a, old, b_format, a_format, dst, chip, phase, phase + 1))
    return joined([from_bits(each) for each in done])


def _chain(arrays: Arrays, index: Index, chip: int) -> Array:
    depths = [matrix[-1] for matrix in index["sections"]["chain"]["matrices"]]
    starts = np.concatenate([[0], np.cumsum(depths)])
    done = []
    for matrix, fmt, is_wide, is_integer, _, passes, depth in _cases(arrays, "chain"):
        first = int(starts[matrix])
        a = bits(arrays["chain_A"][first * 16 : (first + depth) * 16]).view(depth, 16)
        b = bits(arrays["chain_B"][first * 8 : (first + depth) * 8]).view(-1, 8, 16)
        b = b.transpose(0, 1).reshape(8, depth)
        start = torch.zeros(8, 16, dtype=torch.int32)
        done.append(ops.tensix_matmul(b, a, start, fmt, fmt, _dst(is_wide, is_integer, fmt), chip, 0, passes))
    return joined([from_bits(each) for each in done])


def _elw(arrays: Arrays, index: Index, chip: int) -> Array:
    done = []
    for (
        operands,
        start,
        fmt,
        is_wide,
        is_integer,
        _,
        operation,
        accumulates,
        broadcast,
        count,
        *phases,
    ) in _cases(arrays, "elw"):
        a, b = bits(arrays["elw_A"][operands]), bits(arrays["elw_B"][operands])
        if broadcast & 1:
            b = b[:, :1].expand_as(b)
        if broadcast & 2:
            b = b[:1].expand_as(b)
        done.append(
            ops.tensix_elementwise(
                a, b, bits(arrays["elw_dst"][start]), fmt, _dst(is_wide, is_integer, fmt), chip, operation,
                phases[:count], bool(accumulates),
            )
        )  # fmt: skip
    return joined([from_bits(each) for each in done])


def _pool(arrays: Arrays, index: Index, chip: int) -> Array:
    done = []
    for kind, operands, fmt, is_wide, is_integer, _, passes, is_valid in _cases(arrays, "pool"):
        dst = _dst(is_wide, is_integer, fmt)
        a, b = bits(arrays["pool_A"][operands]), bits(arrays["pool_B"][operands])
        if kind == 0:
            sums = torch.zeros(b.shape[1], a.shape[2], dtype=torch.int32)
            for face in range(a.shape[0]):
                sums = ops.tensix_matmul(b[face], a[face], sums, fmt, fmt, dst, chip, 0, passes)
        else:
            sums, valid = torch.zeros(a.shape[2], dtype=torch.int32), bool(is_valid)
            for face in range(a.shape[0]):
                sums, valid = ops.tensix_largest(a[face], sums, fmt, dst, chip, valid), True
        done.append(from_bits(sums))
    return joined(done)


def _pack(arrays: Arrays, index: Index, chip: int) -> Array:
    only_blackhole = index["sections"]["pack"].get("blackhole_only_modes", [])
    at = at_old = 0
    done = []
    for mode, relu, threshold, is_unsigned, adds, rounds, _, count in _cases(arrays, "pack"):
        values = bits(arrays["pack_in"][at : at + count * 16]).view(count, 16)
        at += count * 16
        old = None
        if adds:
            old = bits(arrays["pack_old"][at_old : at_old + count * 16]).view(count, 16)
            at_old += count * 16
        if chip != BLACKHOLE and mode in only_blackhole:
            continue
        done.append(
            from_bits(
                ops.tensix_pack(values, mode, relu, threshold, bool(is_unsigned), bool(rounds), chip, old)
            )
        )
    return joined(done)


def _unpack(arrays: Arrays, index: Index, chip: int) -> Array:
    done = []
    for case, (source, target, _, is_unsigned, has_four) in enumerate(_cases(arrays, "unpack")):
        if has_four and chip != BLACKHOLE:
            continue
        elements, exponents = bits(arrays["unpack_in"][case]), bits(arrays["unpack_exp"][case])
        done.append(
            from_bits(
                ops.tensix_unpack(
                    elements, exponents, source, target, bool(is_unsigned), bool(has_four), chip
                )
            )
        )
    return joined(done)


def _tile_words(data: Array, source: int, target: int, chip: int) -> Tensor:
    """The words [32, 32] of a tile's bytes."""
    exponents = np.zeros(1024, np.uint32)
    if source in BLOCKS:
        exponents = np.repeat(data[:64].astype(np.uint32), 16)
        data = data[64:]
    width = len(data) * 8 // 1024
    if width >= 8:
        parts = data.reshape(1024, width // 8).astype(np.uint32)
        elements = (parts << (8 * np.arange(width // 8, dtype=np.uint32))).sum(1, dtype=np.uint32)
    else:
        shifts = np.arange(0, 8, width, dtype=np.uint32)
        elements = (data[:, None].astype(np.uint32) >> shifts & np.uint32((1 << width) - 1)).reshape(1024)
    words: Tensor = ops.tensix_unpack(bits(elements), bits(exponents), source, target, False, False, chip)
    return words.view(2, 2, 16, 16).transpose(1, 2).reshape(32, 32)


def _tile(arrays: Arrays, index: Index, chip: int) -> Array:
    at = 0
    done = []
    for source0, target0, source1, target1, is_wide, passes, pack, result, count, size0, size1 in _cases(
        arrays, "tile"
    ):
        left, right = [], []
        for _ in range(count):
            data = arrays["tile_in"][at : at + size0 + size1]
            at += size0 + size1
            left.append(_tile_words(data[:size0], source0, target0, chip))
            right.append(_tile_words(data[size0:], source1, target1, chip))
        is_integer = int(target1 == 14)
        sums = ops.tensix_matmul(
            torch.cat(left, 1), torch.cat(right), torch.zeros(32, 32, dtype=torch.int32), target0, target1,
            _dst(is_wide, is_integer, target1), chip, 0, passes,
        )  # fmt: skip
        faces = sums.view(2, 16, 2, 16).transpose(1, 2).reshape(64, 16)
        mode = 256 * is_wide + 16 * pack + result
        packed = from_bits(ops.tensix_pack(faces, mode, 0, 0, False, False, chip))
        if result in BLOCKS:
            packed = np.concatenate([packed[:, 0], packed[:, 1:].reshape(-1)])
        done.append(packed)
    return joined(done)


def _vector(name: str) -> Compute:
    """A primitive of the vector unit by the name of its section: ``sfpu_load2``."""
    kinds = {
        "stoch_rnd": "round",
        "cast": "cast",
        "load": "load",
        "store": "store",
        "arecip": "approximate_reciprocal",
    }

    def compute(arrays: Arrays, index: Index, chip: int) -> Array:
        given = bits(arrays[f"sfpu_{name}_in"])
        if name == "mad":
            return from_bits(ops.tensix_multiply_add(*given.unbind(1), chip))
        if name in ("lut8", "lutfp32"):
            return from_bits(ops.tensix_lookup(given, name == "lutfp32", chip))
        kind = name.rstrip("0123456789")
        return from_bits(ops.tensix_vector(given, kinds[kind], int(name[len(kind) :] or 0), chip))

    return compute


SECTIONS: dict[str, Compute] = {
    "step": _step,
    "chain": _chain,
    "elw": _elw,
    "pool": _pool,
    "pack": _pack,
    "unpack": _unpack,
    "tile": _tile,
}


def _no_rule(arrays: Arrays, index: Index, chip: int) -> Array:
    raise NotImplementedError("no rule for this section")


def _host(arrays: Arrays) -> Array:
    values = bits(arrays["host_in"])
    return joined(
        [
            from_bits(ops.tensix_host(values, width, bool(is_short)))
            for width, is_short in _cases(arrays, "host")
        ]
    )


def results(arrays: Arrays, index: Index) -> Iterator[Result]:
    """Every section that has results; Blackhole's are Wormhole's where the set leaves them out."""
    names = dict.fromkeys(key.rpartition("_out_")[0] for key in arrays if "_out_" in key)
    counts = index.get("counts", {})
    for name in names:
        compute = _vector(name[5:]) if name.startswith("sfpu_") else SECTIONS.get(name, _no_rule)
        for chip, suffix in enumerate(CHIPS):
            wanted = arrays.get(f"{name}_out_{suffix}")
            if wanted is None and suffix == "bh" and f"{name}/bh" in counts:
                wanted = arrays.get(f"{name}_out_wh")
            if wanted is not None:
                yield compared(
                    f"{name}/{suffix}",
                    wanted,
                    lambda chip=chip, compute=compute: compute(arrays, index, chip),  # type: ignore[misc]
                )
    if "host_out" in arrays:
        yield compared("host", arrays["host_out"], lambda: _host(arrays))
    known = {f"{name}_out_{suffix}" for name in names for suffix in CHIPS} | {"host_out"}
    for key, value in arrays.items():
        if key.endswith("_out") and key not in known:
            yield Result(key, 0, value.size, "no rule for this section")
