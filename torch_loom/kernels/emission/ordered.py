"""C++ for one element of the ops whose order the program sees: atomics, prints, asserts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.emission.types import cpp_type, unsigned
from torch_loom.kernels.lowering.plan import loop_shape
from torch_loom.kernels.ttir.model import Op, Pointer, Scalar, element_of

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

_CHANGES = {
    "add": "old + given",
    "fadd": "old + given",
    "and": "old & given",
    "or": "old | given",
    "xor": "old ^ given",
    "exch": "given",
    "max": "given > old ? given : old",
    "min": "given < old ? given : old",
    "umax": "{U}(given) > {U}(old) ? given : old",
    "umin": "{U}(given) < {U}(old) ? given : old",
}


def ordered(
    function: FunctionText, op: Op, arguments: list[str], place: list[str], *, has_wrapped: str = ""
) -> tuple[list[str], str]:
    """Return the lines for one element, and the name of its result if it has one.

    Args:
        function: where it stands.
        op: the op.
        arguments: C++ of its operands.
        place: C++ of the indices of the element.
        has_wrapped: C++ of whether its address has wrapped around; "": it has not.
    """
    if op.name == "tt.print":
        return _print(function, op, arguments, place), ""
    if op.name == "tt.assert":
        message = quoted(op.attributes.get("message") or (op.attributes.get("strings") or [""])[0])
        where = quoted(str(op.place))
        return [
            f"if (__builtin_expect(!({arguments[0]}), 0)) fail('A', \"%s: program (%d, %d, %d): "
            f'the assertion failed: %s", {where}, program.id[0], program.id[1], program.id[2], {message});'
        ], ""
    return _atomic(function, op, arguments, has_wrapped)


def _atomic(function: FunctionText, op: Op, arguments: list[str], has_wrapped: str) -> tuple[list[str], str]:
    kind = function.element_type(op.result)
    name = function.name("t")
    site = function.site(op)
    if op.name == "tt.atomic_cas":
        pointer, expected, given = arguments
        same = f"bits_as<{_word(kind)}>(old) == bits_as<{_word(kind)}>({kind}({expected}))"
        change = f"[&]({kind} old) {{ return {same} ? {kind}({given}) : old; }}"
        mask = None
    else:
        pointer, given = arguments[:2]
        mask = arguments[2] if len(arguments) > 2 else None
        word = op.attributes["words"][0]
        if word not in _CHANGES:
            raise elements.refused(op, f"the atomic {word}")
        text = _CHANGES[word].format(U=unsigned(kind))
        change = f"[given = {kind}({given})]({kind} old) {{ return {kind}({text}); }}"
    # A single number may be a lock, or a counter: what is done behind it is ordered.
    is_lock = isinstance(op.result.type, Scalar | Pointer) and "relaxed" not in op.attributes["words"]
    access = "kLock" if is_lock else "kAtomic"
    given = ", ".join(["program", site, pointer, change, *filter(None, [has_wrapped])])
    exchange = f"exchange<{kind}, {access}>({given})"
    if mask is not None:
        exchange = f"{mask} ? {exchange} : {kind}()"
    if isinstance(op.result.type, Scalar | Pointer):
        return [f"{function.number(op.result)} = {exchange};"], ""
    return [f"const {kind} {name} = {exchange};"], name


def _word(kind: str) -> str:
    sizes = {"float": 32, "double": 64, "f16": 16, "bf16": 16, "int64_t": 64, "int16_t": 16, "int8_t": 8}
    return f"uint{sizes.get(kind, 32)}_t"


def _print(function: FunctionText, op: Op, arguments: list[str], place: list[str]) -> list[str]:
    prefix = op.attributes.get("prefix") or (op.attributes.get("strings") or [""])[0]
    is_hex = bool(op.attributes.get("hex"))
    signs = op.attributes.get("isSigned", [])
    # Indices are as wide as the last one.
    widths = [len(str(size - 1)) for size in loop_shape(op)]
    where = ", ".join(f"%{width}d" for width in widths)
    fixed = ", ".join(["program.id[0], program.id[1], program.id[2]", *(f"int({item})" for item in place)])
    # What is no block, each thread of a GPU prints.
    each = "" if place else f"for (int thread = 0; thread < {function.kernel.num_threads}; ++thread) "
    if not arguments:
        return [f'{each}printf("pid (%d, %d, %d)%s\\n", {fixed}, {quoted(prefix)});']
    lines = []
    for number, (argument, value) in enumerate(zip(arguments, op.operands, strict=True)):
        element = element_of(value.type)
        is_signed = number >= len(signs) or bool(signs[number])
        form, shown = _shown(argument, element, is_hex=is_hex, is_signed=is_signed)
        operand = f"(operand {number}) " if len(arguments) > 1 else ""
        head = f"pid (%d, %d, %d) idx ({where})%s{operand}{form}\\n"
        lines.append(f'{each}printf("{head}", {fixed}, {quoted(prefix)}, {shown});')
    return lines


def _shown(argument: str, element: Scalar | Pointer, *, is_hex: bool, is_signed: bool) -> tuple[str, str]:
    if isinstance(element, Pointer):
        return "0x%016llx", f"(unsigned long long)({argument})"
    if element.is_float:
        if is_hex:
            return (
                f"0x%0{element.bits // 4}llx",
                f"(unsigned long long)bits_as<{_word(cpp_type(element) or '')}>({argument})",
            )
        return "%f", f"double({argument})"
    if is_hex:
        kind = unsigned(cpp_type(element) or "int64_t")
        return f"0x%0{max(element.bits // 4, 1)}llx", f"(unsigned long long)({kind}({argument}))"
    if element.bits == 1:
        return "%d", f"int({argument})"
    if is_signed:
        return "%lld", f"(long long)({argument})"
    return "%llu", f"(unsigned long long)({unsigned(cpp_type(element) or 'int64_t')}({argument}))"


def quoted(text: str) -> str:
    """Return a text as a literal of C++."""
    shown = []
    for byte in text.encode():
        character = chr(byte)
        is_plain = 32 <= byte < 127 and character not in '"\\?'
        shown.append(character if is_plain else f"\\{byte:03o}")
    return '"' + "".join(shown) + '"'
