"""Inline assembly: a few instructions of PTX on numbers, each as an expression of C++."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from torch_loom.kernels.emission import elements
from torch_loom.kernels.ttir.model import Op

if TYPE_CHECKING:
    from torch_loom.kernels.emission.function import FunctionText

_TYPES = {
    **{f"u{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"s{bits}": f"int{bits}_t" for bits in (8, 16, 32, 64)},
    **{f"b{bits}": f"uint{bits}_t" for bits in (8, 16, 32, 64)},
    "f32": "float",
    "f64": "double",
    "f16": "f16",
    "bf16": "bf16",
    "pred": "bool",
}
_OPS = {
    "mov": "{0}",
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul.lo": "{0} * {1}",
    "mul.rn": "{0} * {1}",
    "mul": "{0} * {1}",
    "mul.hi": "high_product({0}, {1})",
    "mad.lo": "{0} * {1} + {2}",
    "fma.rn": "fma({0}, {1}, {2})",
    "fma": "fma({0}, {1}, {2})",
    "div": "{0} / {1}",
    "div.full": "{0} / {1}",
    "div.rn": "{0} / {1}",
    "div.approx": "{0} / {1}",
    "and": "{0} & {1}",
    "or": "{0} | {1}",
    "xor": "{0} ^ {1}",
    "not": "~{0}",
    "neg": "-{0}",
    "abs": "{0} < 0 ? -{0} : {0}",
    "min": "{1} < {0} ? {1} : {0}",
    "max": "{1} > {0} ? {1} : {0}",
    "shl": "shifted_left<{T}>({0}, {1})",
    "shr": "shifted_right<{T}>({0}, {1})",
    "ex2.approx": "exp2({0})",
    "lg2.approx": "log2({0})",
    "rcp.approx": "1 / {0}",
    "rcp.rn": "1 / {0}",
    "sqrt.approx": "sqrt({0})",
    "sqrt.rn": "sqrt({0})",
    "rsqrt.approx": "rsqrt({0})",
    "sin.approx": "sin({0})",
    "cos.approx": "cos({0})",
    "tanh.approx": "tanh({0})",
    "popc": "__builtin_popcount({0})",
    "clz": "{0} == 0 ? 32 : __builtin_clz({0})",
    "selp": "{2} ? {0} : {1}",
}
_COMPARED = {"eq": "==", "ne": "!=", "lt": "<", "le": "<=", "gt": ">", "ge": ">=", "lo": "<", "hi": ">"}
_IGNORED = {"ftz", "sat", "rn", "rz", "lo", "hi", "approx", "full", "wide"}
_IMMEDIATE = re.compile(r"^-?(?:0[xX][0-9a-fA-F]+|\d+)[uU]?$|^0[fF][0-9a-fA-F]{8}$|^-?\d+\.\d*$")


def translated(function: FunctionText, op: Op, arguments: list[str]) -> tuple[list[str], list[str]]:
    """Return lines for the instructions of an op, and the names of its results.

    Raises:
        UnsupportedKernelError: an instruction is not known, or several elements share a register.
    """
    strings = op.attributes.get("strings") or [""]
    text = str(op.attributes.get("asm_string", strings[0]))
    constraints = str(op.attributes.get("constraints", "")).replace(" ", "").split(",")
    if int(op.attributes.get("packed_element", 1)) != 1:
        raise elements.refused(op, "inline assembly of several elements at once")
    outputs = [one for one in constraints if one.startswith("=")]
    lines: list[str] = []
    registers: dict[str, tuple[str, str]] = {}
    results = []
    for number, (result, one) in enumerate(zip(op.results, outputs, strict=False)):
        kind = _register_type(one.strip("=&"), function.element_type(result))
        name = function.name("r")
        lines.append(f"{kind} {name}{{}};")
        registers[f"${number}"] = (name, kind)
        results.append(f"from_register<{function.element_type(result)}>({name})")
    inputs = [one for one in constraints if not one.startswith(("=", "~"))]
    for number, (argument, one) in enumerate(zip(arguments, inputs, strict=False)):
        source = function.element_type(op.operands[number])
        name = function.name("r")
        kind = _register_type(one, source)
        lines.append(f"const {kind} {name} = to_register<{kind}>({source}({argument}));")
        registers[f"${len(outputs) + number}"] = (name, kind)
    body = re.sub(r"//[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL).replace("{", ";").replace("}", ";")
    for statement in (one.strip() for one in body.split(";")):
        if statement:
            lines += _statement(function, op, statement, registers)
    return lines, results


def _register_type(constraint: str, kind: str) -> str:
    if constraint == "f":
        return "float"
    if constraint == "d":
        return "double"
    return {"h": "uint16_t", "l": "uint64_t", "c": "uint16_t"}.get(constraint, "uint32_t")


def _statement(
    function: FunctionText, op: Op, statement: str, registers: dict[str, tuple[str, str]]
) -> list[str]:
    if statement.startswith(".reg"):
        _, kind, names = re.split(r"\s+", statement, maxsplit=2)
        lines = []
        for name in names.split(","):
            own = function.name("r")
            cpp = _TYPES.get(kind.lstrip("."))
            if cpp is None:
                raise elements.refused(op, f"inline assembly with registers {kind}")
            registers[name.strip()] = (own, cpp)
            lines.append(f"{cpp} {own}{{}};")
        return lines
    guard = ""
    if statement.startswith("@"):
        predicate, _, statement = statement.partition(" ")
        name = predicate.lstrip("@!")
        guard = f"if ({'!' if '!' in predicate else ''}{registers[name][0]}) "
        statement = statement.strip()
    instruction, _, rest = statement.partition(" ")
    operands = [one.strip() for one in rest.split(",")]
    name, *modifiers = instruction.split(".")
    types = [one for one in modifiers if one in _TYPES]
    if not types or operands[0] not in registers:
        raise elements.refused(op, f"the instruction {instruction!r} of inline assembly")
    if name == "cvt":
        to, source = types[0], types[-1]
        value = _operand(op, operands[1], source, registers)
        expression = f"{_TYPES[to]}({value})"
        kind = _TYPES[to]
        if to[0] in "us" and source[0] in "fb" and "f" in source:
            expression = f"whole<{kind}>({'rint' if 'rni' in modifiers else ''}({value}))"
    elif name == "setp":
        kind = "bool"
        a, b = (_operand(op, one, types[0], registers) for one in operands[1:3])
        sign = _COMPARED.get(modifiers[0])
        if sign is None:
            raise elements.refused(op, f"the instruction {instruction!r} of inline assembly")
        expression = f"({a} {sign} {b})"
    else:
        words = [one for one in modifiers if one not in _TYPES]
        known = next(
            (one for one in (".".join([name, *words[:1]]), name) if one in _OPS and set(words) <= _IGNORED),
            None,
        )
        if known is None:
            raise elements.refused(op, f"the instruction {instruction!r} of inline assembly")
        kind = _TYPES[types[0]]
        values = []
        for number, one in enumerate(operands[1:]):
            of = "pred" if name == "selp" and number == 2 else types[0]
            values.append(_operand(op, one, of, registers))
        if name in ("shl", "shr"):
            values[1] = f"{kind}({values[1]})"
        expression = f"{kind}({_OPS[known].format(*values, T=kind)})"
    target, register = registers[operands[0]]
    return [f"{guard}{target} = to_register<{register}>({expression});"]


def _operand(op: Op, text: str, kind: str, registers: dict[str, tuple[str, str]]) -> str:
    if text in registers:
        name, register = registers[text]
        return name if register == _TYPES[kind] else f"from_register<{_TYPES[kind]}>({name})"
    if _IMMEDIATE.match(text):
        if text[:2] in ("0f", "0F"):
            return f"bits_as<float>(0x{text[2:]}u)"
        return f"{_TYPES[kind]}({text})"
    raise elements.refused(op, f"the operand {text!r} of inline assembly")
