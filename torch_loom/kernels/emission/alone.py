"""C++ of the ops that run by themselves: products, scans, reductions of their own, histograms."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.assembly import in_groups
from torch_loom.kernels.lowering import ops as kinds
from torch_loom.kernels.ttir.model import Op, Tensor, Value

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText


def lines(function: FunctionText, op: Op) -> list[str]:
    """Return the lines of an op that has its operands in memory.

    Raises:
        UnsupportedKernelError: it is not compiled.
    """
    if op.name == "tt.dot":
        return _dot(function, op)
    if op.name == "tt.dot_scaled":
        return _dot_scaled(function, op)
    if op.name == "tt.scan":
        return _scan(function, op)
    if op.name == "tt.reduce":
        return _reduce(function, op)
    if op.name == "tt.histogram":
        return _histogram(function, op)
    if kinds.is_in_groups(op):
        return _grouped(function, op)
    raise elements.refused(op, f"the op {op.name}")


def _in_memory(function: FunctionText, value: Value) -> tuple[list[str], str]:
    """Return lines that bring a block to memory, and where it is."""
    if value not in function.lowered.inline:
        return [], function.buffer(value)
    assert isinstance(value.type, Tensor)
    place = function.scratch(function.element_type(value), value.type.size)
    return function.fill(value, place), place


def _all_in_memory(function: FunctionText, values: Sequence[Value]) -> tuple[list[str], list[str]]:
    placed = [_in_memory(function, value) for value in values]
    return [line for more, _ in placed for line in more], [place for _, place in placed]


# As Operand of csrc/numerics/tensor_core/rules.h and csrc/numerics/blocks.h number them.
_FORMATS = {"f16": 0, "bf16": 1, "tf32": 2, "f8E4M3FN": 3, "f8E5M2": 4, "tf32x3": 6}


def _dot(function: FunctionText, op: Op) -> list[str]:
    found, places = _all_in_memory(function, op.operands)
    left, right, total = places
    shape, other = op.operands[0].type, op.operands[1].type
    assert isinstance(shape, Tensor)
    assert isinstance(other, Tensor)
    height, depth, width = shape.shape[-2], shape.shape[-1], other.shape[-1]
    kind = function.element_type(op.result)
    product = f"product<{kind}, {height}, {width}, {depth}>("
    formats = [_FORMATS.get(each) for each in op.attributes.get("loom.formats", ())]
    if formats and None not in formats:
        chain = int(op.attributes.get("maxNumImpreciseAcc", 0))
        # No group of warps multiplies blocks of three dimensions.
        threads = function.kernel.num_threads if len(shape.shape) == 2 else 32
        blocks = (*formats, height, width, depth, threads, chain)
        product = f"product_by_rule<{height}, {width}, {depth}>(program, {{{', '.join(map(str, blocks))}}}, "
    out = function.buffer(op.result)
    if len(shape.shape) == 2:
        return [*found, f"{product}{out}, {total}, {left}, {right});"]
    batch = math.prod(shape.shape[:-2])
    k = function.name("k")
    sizes = (height * width, height * width, height * depth, depth * width)
    places = [f"{each} + {k} * {size}" for each, size in zip((out, total, left, right), sizes, strict=True)]
    return [*found, f"for (int64_t {k} = 0; {k} < {batch}; ++{k}) {product}{', '.join(places)});"]


_SCALED = {"e2m1": "FP4", "e4m3": "f8E4M3FN", "e5m2": "f8E5M2", "fp16": "f16", "bf16": "bf16"}


def _dot_scaled(function: FunctionText, op: Op) -> list[str]:
    found: list[str] = []
    names = []
    scales = [op.attributes.get("scale0"), op.attributes.get("scale1")]
    for value in op.operands:
        more, place = _in_memory(function, value)
        found += more
        names.append(place)
    scale_names = []
    for scale in scales:
        if scale is None:
            scale_names.append("nullptr")
            continue
        more, place = _in_memory(function, scale)
        found += more
        scale_names.append(f"(const uint8_t*){place}")
    result = op.result.type
    assert isinstance(result, Tensor)
    height, width = result.shape[-2:]
    left = op.operands[0].type
    assert isinstance(left, Tensor)
    formats = [str(op.attributes.get(side)) for side in ("lhs", "rhs")]
    if any(each not in _SCALED for each in formats):
        raise elements.refused(op, f"tl.dot_scaled of {formats[0]} and {formats[1]}")
    lhs, rhs = (_SCALED[each] for each in formats)
    depth = left.shape[-1] * (2 if lhs == "FP4" else 1)
    factors = []
    scale_types = []
    for scale in scales:
        factors.append(1 if scale is None else depth // scale.type.shape[-1])
        scale_types.append("int8_t" if scale is None else function.element_type(scale))
    kind = function.element_type(op.result)
    batch = math.prod(result.shape[:-2])
    if batch != 1:
        raise elements.refused(op, "tl.dot_scaled of three dimensions")
    return [
        *found,
        f"scaled_product<{kind}, {lhs}, {rhs}, {', '.join(scale_types)}, {height}, {width}, {depth}, "
        f"{factors[0]}, {factors[1]}>("
        f"{function.buffer(op.result)}, {names[2]}, (const uint8_t*){names[0]}, (const uint8_t*){names[1]}, "
        f"{scale_names[0]}, {scale_names[1]});",
    ]


def _grouped(function: FunctionText, op: Op) -> list[str]:
    found: list[str] = []
    places = []
    for value in op.operands:
        more, place = _in_memory(function, value)
        found += more
        places.append(place)
    outs = [function.buffer(result) for result in op.results]
    if op.name == "tt.elementwise_inline_asm":
        return [*found, *in_groups(function, op, places, outs)]
    size, k = op.attributes["pack"], function.name("k")
    given = [f"{place}[{k} + {number}]" for place in places for number in range(size)]
    body, results = function.combined(op.regions[0], given)
    to = [f"{out}[{k} + {number}]" for out in outs for number in range(size)]
    writes = [f"{place} = {text};" for place, text in zip(to, results, strict=True)]
    shape = op.results[0].type
    assert isinstance(shape, Tensor)
    head = f"for (int64_t {k} = 0; {k} < {shape.size}; {k} += {size}) {{"
    return [*found, head, *body, *writes, "}"]


def _split(op: Op) -> tuple[int, int, int]:
    """Return how many elements are in front of an op's axis, along it, and behind it."""
    block, axis = op.operands[0].type, op.attributes["axis"]
    assert isinstance(block, Tensor)
    return math.prod(block.shape[:axis]), block.shape[axis], math.prod(block.shape[axis + 1 :])


def _scan(function: FunctionText, op: Op) -> list[str]:
    found, sources = _all_in_memory(function, op.operands)
    front, length, behind = _split(op)
    f, k, b, at = (function.name(letter) for letter in "fkbj")
    place = f"{length} - 1 - {k}" if op.attributes.get("reverse") else k
    totals = [function.name("a") for _ in sources]
    types = [function.element_type(value) for value in op.operands]
    body, results = function.combined(op.regions[0], [*totals, *(f"{source}[{at}]" for source in sources)])
    news = [function.name("y") for _ in results]
    sets = [f"const {kind} {new} = {each};" for kind, new, each in zip(types, news, results, strict=True)]
    sets += [f"{total} = {new};" for total, new in zip(totals, news, strict=True)]
    writes = [
        f"{function.buffer(result)}[{at}] = {total};"
        for result, total in zip(op.results, totals, strict=True)
    ]
    # The lines behind the axis are neighbours.
    if behind > 1:
        rows = [function.scratch(kind, behind) for kind in types]
        first = [f"{row}[{b}] = {source}[{at}];" for row, source in zip(rows, sources, strict=True)]
        loads = [
            f"{kind} {total} = {row}[{b}];" for kind, total, row in zip(types, totals, rows, strict=True)
        ]
        keeps = [f"{row}[{b}] = {total};" for row, total in zip(rows, totals, strict=True)]
        return [
            *found,
            f"for (int64_t {f} = 0; {f} < {front}; ++{f}) {{",
            f"for (int64_t {k} = 0; {k} < {length}; ++{k}) {{",
            f"for (int64_t {b} = 0; {b} < {behind}; ++{b}) {{",
            f"const int64_t {at} = ({f} * {length} + ({place})) * {behind} + {b};",
            f"if ({k} == 0) {{ {' '.join(first)} }}",
            *loads,
            f"if ({k} != 0) {{",
            *body,
            *sets,
            "}",
            *keeps,
            *writes,
            *["}"] * 3,
        ]
    starts = [f"{kind} {total}{{}};" for kind, total in zip(types, totals, strict=True)]
    begins = [f"{total} = {source}[{at}];" for total, source in zip(totals, sources, strict=True)]
    return [
        *found,
        f"for (int64_t {f} = 0; {f} < {front}; ++{f}) {{",
        *starts,
        f"for (int64_t {k} = 0; {k} < {length}; ++{k}) {{",
        f"const int64_t {at} = {f} * {length} + ({place});",
        f"if ({k} == 0) {{",
        *begins,
        "} else {",
        *body,
        *sets,
        "}",
        *writes,
        *["}"] * 2,
    ]


def _reduce(function: FunctionText, op: Op) -> list[str]:
    """Combine halves: the order is the same for every size, and each half is vectors."""
    found, sources = _all_in_memory(function, op.operands)
    front, length, behind = _split(op)
    types = [function.element_type(value) for value in op.operands]
    rows = [function.scratch(kind, length * behind) for kind in types]
    f, half, k = (function.name(letter) for letter in "fhk")
    copies = [
        f"copy_block({row}, {source} + {f} * {length * behind}, {length * behind});"
        for row, source in zip(rows, sources, strict=True)
    ]
    body, results = function.combined(
        op.regions[0], [*(f"{row}[{k}]" for row in rows), *(f"{row}[{k} + {half}]" for row in rows)]
    )
    news = [function.name("y") for _ in results]
    sets = [f"const {kind} {new} = {each};" for kind, new, each in zip(types, news, results, strict=True)]
    sets += [f"{row}[{k}] = {new};" for row, new in zip(rows, news, strict=True)]
    writes = []
    for result, row in zip(op.results, rows, strict=True):
        if kinds.is_number(result.type):
            writes.append(f"{function.number(result)} = {row}[0];")
        else:
            writes.append(f"copy_block({function.buffer(result)} + {f} * {behind}, {row}, {behind});")
    return [
        *found,
        f"for (int64_t {f} = 0; {f} < {front}; ++{f}) {{",
        *copies,
        f"for (int64_t {half} = {length * behind // 2}; {half} >= {behind}; {half} /= 2) {{",
        "#pragma GCC ivdep",
        f"for (int64_t {k} = 0; {k} < {half}; ++{k}) {{",
        *body,
        *sets,
        *["}"] * 2,
        *writes,
        "}",
    ]


def _histogram(function: FunctionText, op: Op) -> list[str]:
    found, source = _in_memory(function, op.operands[0])
    shape, bins = op.operands[0].type, op.result.type
    assert isinstance(shape, Tensor)
    assert isinstance(bins, Tensor)
    mask = None
    if len(op.operands) > 1:
        more, mask = _in_memory(function, op.operands[1])
        found += more
    out, k = function.buffer(op.result), function.name("k")
    is_in = f"uint64_t({source}[{k}]) < {bins.size}" + (f" && {mask}[{k}]" if mask else "")
    return [
        *found,
        f"for (int64_t {k} = 0; {k} < {bins.size}; ++{k}) {out}[{k}] = 0;",
        f"for (int64_t {k} = 0; {k} < {shape.size}; ++{k}) if ({is_in}) ++{out}[{source}[{k}]];",
    ]
