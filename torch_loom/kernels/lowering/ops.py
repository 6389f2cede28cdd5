"""What the ops of Triton's IR are to the lowering: by name, and by the types of their values."""

from __future__ import annotations

from torch_loom.kernels.ttir.model import Op, Pointer, Scalar, Tensor, Type, element_of, shape_of

# They only say from which element of an operand an element comes.
VIEWS = {
    *("tt.splat", "tt.broadcast", "tt.expand_dims", "tt.reshape", "tt.trans", "tt.make_range"),
    *("tt.split", "tt.join", "tt.cat", "arith.constant", "tt.unsplat", "ub.poison"),
}
# One element of the result needs the element of the same place of each operand.
ELEMENTWISE = {
    *("tt.addptr", "tt.bitcast", "tt.fp_to_fp", "tt.int_to_ptr", "tt.ptr_to_int", "tt.clampf", "tt.mulhiui"),
    *("tt.precise_sqrt", "tt.precise_divf", "tt.extern_elementwise", "tt.elementwise_inline_asm"),
    *("tt.map_elementwise", "loom.tf32"),
}
# Other names of the same bits.
BITCASTS = {"tt.bitcast", "arith.bitcast"}
_ELEMENTWISE_DIALECTS = ("arith.", "math.")
CONTROL = {"scf.for", "scf.if", "scf.while", "tt.call"}
TERMINATORS = {
    *("scf.yield", "scf.condition", "tt.return", "tt.reduce.return", "tt.scan.return", "cf.br", "cf.cond_br"),
    "tt.map_elementwise.return",
}
# They say something to Triton's own optimiser.
HINTS = {"llvm.intr.assume", "gpu.barrier", "tt.debug_barrier", "ttg.barrier", "ttg.local_barrier"}
# They run alone, on operands that are in memory, and leave results there.
ALONE = {"tt.dot", "tt.dot_scaled", "tt.scan", "tt.histogram"}
# They touch memory or the host, element by element, in a loop of their own.
ORDERED = {"tt.atomic_rmw", "tt.atomic_cas", "tt.print", "tt.assert"}
LOADS, STORES = {"tt.load"}, {"tt.store"}

# A combination that a reduction can do in any order, from a first value: C++ of that value by kind of type.
_SIMPLE = {
    *("arith.addf", "arith.addi", "arith.mulf", "arith.muli", "arith.maxnumf", "arith.minnumf"),
    *("arith.maxsi", "arith.minsi", "arith.maxui", "arith.minui", "arith.andi", "arith.ori", "arith.xori"),
}


def is_elementwise(op: Op) -> bool:
    return op.name in ELEMENTWISE or (op.name.startswith(_ELEMENTWISE_DIALECTS) and op.name not in VIEWS)


def is_index_math(op: Op) -> bool:
    """Whether it computes whole numbers, addresses or truth values from such: places in memory, and masks."""
    if not is_elementwise(op) or op.name in ("tt.extern_elementwise", "tt.elementwise_inline_asm"):
        return False
    if op.name == "tt.map_elementwise":
        return False
    return all(_is_whole(value.type) for value in (*op.operands, *op.results))


def _is_whole(kind: Type) -> bool:
    element = element_of(kind)
    return isinstance(element, Pointer) or element.is_integer


def simple_combination(op: Op) -> str | None:
    """Return the name of the only op that a reduction combines with, where its order does not matter.

    None where a reduction has several operands, or combines in a way of its own.
    """
    if op.name != "tt.reduce" or len(op.operands) != 1 or len(op.regions[0].blocks) != 1:
        return None
    block = op.regions[0].only
    if len(block.ops) != 2 or block.ops[0].name not in _SIMPLE:
        return None
    combined, result = block.ops
    if result.operands != combined.results or set(combined.operands) != set(block.arguments):
        return None
    return combined.name


def is_of_pairs(op: Op) -> bool:
    """Whether it is a reduction of two elements each, which is computed where it is used."""
    if simple_combination(op) is None or not isinstance(op.result.type, Tensor):
        return False
    return bool(shape_of(op.operands[0].type)[op.attributes["axis"]] == 2)


def runs_alone(op: Op) -> bool:
    is_own = op.name == "tt.reduce" and simple_combination(op) is None
    return op.name in ALONE or is_own or is_in_groups(op)


def is_in_groups(op: Op) -> bool:
    """Whether a function of the program's is called for groups of elements of a block, or has effects."""
    if not any(isinstance(value.type, Tensor) for value in (*op.operands, *op.results)):
        return False
    if op.name == "tt.map_elementwise":
        return int(op.attributes.get("pack", 1)) != 1
    is_assembly = op.name == "tt.elementwise_inline_asm"
    return is_assembly and (int(op.attributes.get("packed_element", 1)) != 1 or has_effects(op))


def has_effects(op: Op) -> bool:
    """Whether inline assembly may touch memory."""
    return op.name == "tt.elementwise_inline_asm" and not op.attributes.get("pure")


def weight(op: Op) -> int:
    """Return what it costs to compute an element again, in additions of whole numbers."""
    if op.name in VIEWS or op.name in BITCASTS:
        return 0
    if op.name in ("arith.divsi", "arith.remsi", "arith.divui", "arith.remui"):
        return 4
    return 1


def is_number(kind: Type) -> bool:
    """Whether it is one value, which a C++ variable holds."""
    return isinstance(kind, Scalar | Pointer)
