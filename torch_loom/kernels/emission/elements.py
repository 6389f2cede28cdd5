"""C++ for one element of an op whose results need the elements of the same place alone."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from torch_loom.errors import UnsupportedKernelError
from torch_loom.kernels.emission import libdevice
from torch_loom.kernels.emission.types import byte_size, cpp_type, unsigned
from torch_loom.kernels.ttir.model import Op, Pointer, Scalar, element_of

_BINARY = {
    "arith.addf": "{0} + {1}",
    "arith.subf": "{0} - {1}",
    "arith.mulf": "{0} * {1}",
    "arith.divf": "{0} / {1}",
    "tt.precise_divf": "{0} / {1}",
    "arith.addi": "{0} + {1}",
    "arith.subi": "{0} - {1}",
    "arith.muli": "{0} * {1}",
    "arith.divsi": "quotient<{T}>({0}, {1})",
    "arith.remsi": "remainder<{T}>({0}, {1})",
    "arith.divui": "quotient<{U}>({0}, {1})",
    "arith.remui": "remainder<{U}>({0}, {1})",
    "arith.floordivsi": "floor_quotient<{T}>({0}, {1})",
    "arith.ceildivsi": "-floor_quotient<{T}>(-{0}, {1})",
    "arith.shli": "shifted_left<{T}>({0}, {1})",
    "arith.shrsi": "shifted_right<{T}>({0}, {1})",
    "arith.shrui": "shifted_right_unsigned<{T}>({0}, {1})",
    "arith.andi": "{0} & {1}",
    "arith.ori": "{0} | {1}",
    "arith.xori": "{0} ^ {1}",
    "arith.maxsi": "{1} > {0} ? {1} : {0}",
    "arith.minsi": "{1} < {0} ? {1} : {0}",
    "arith.maxui": "{U}({1}) > {U}({0}) ? {1} : {0}",
    "arith.minui": "{U}({1}) < {U}({0}) ? {1} : {0}",
    "arith.maxnumf": "max_number<{F}>({0}, {1})",
    "arith.minnumf": "min_number<{F}>({0}, {1})",
    "arith.maximumf": "max_or_nan<{F}>({0}, {1})",
    "arith.minimumf": "min_or_nan<{F}>({0}, {1})",
    "arith.remf": "fmod({F}({0}), {F}({1}))",
    "tt.mulhiui": "high_product({U}({0}), {U}({1}))",
    "math.powf": "pow({F}({0}), {F}({1}))",
    "math.copysign": "copysign({F}({0}), {F}({1}))",
    "math.atan2": "atan2({F}({0}), {F}({1}))",
    "math.ipowi": "pow_whole<{T}>({0}, {1})",
    "math.fpowi": "pow_whole<{F}>({0}, {1})",
}
_UNARY = {
    "arith.negf": "-{0}",
    "tt.precise_sqrt": "sqrt({F}({0}))",
    "math.absi": "{0} < 0 ? -{0} : {0}",
    "math.absf": "fabs({F}({0}))",
    "math.roundeven": "rint({F}({0}))",
    "loom.tf32": "cut_to_tf32({0})",
    "math.ctpop": "__builtin_popcountll({U}({0}))",
    "math.ctlz": "{0} == 0 ? {bits} : __builtin_clzll({U}({0})) - (64 - {bits})",
    "math.cttz": "{0} == 0 ? {bits} : __builtin_ctzll({U}({0}))",
}
_MATH = {
    *("exp", "exp2", "log", "log2", "sqrt", "rsqrt", "sin", "cos", "tan", "asin", "acos", "atan", "sinh"),
    *("cosh", "tanh", "asinh", "acosh", "atanh", "erf", "erfc", "floor", "ceil", "trunc", "round", "log10"),
    *("log1p", "expm1", "cbrt"),
}
_COMPARED = {
    "eq": "{0} == {1}",
    "ne": "{0} != {1}",
    "slt": "{0} < {1}",
    "sle": "{0} <= {1}",
    "sgt": "{0} > {1}",
    "sge": "{0} >= {1}",
    "ult": "{U}({0}) < {U}({1})",
    "ule": "{U}({0}) <= {U}({1})",
    "ugt": "{U}({0}) > {U}({1})",
    "uge": "{U}({0}) >= {U}({1})",
    "oeq": "{0} == {1}",
    "ogt": "{0} > {1}",
    "oge": "{0} >= {1}",
    "olt": "{0} < {1}",
    "ole": "{0} <= {1}",
    "one": "{0} < {1} || {0} > {1}",
    "ord": "{0} == {0} && {1} == {1}",
    "ueq": "!({0} < {1} || {0} > {1})",
    "ugt_f": "!({0} <= {1})",
    "uge_f": "!({0} < {1})",
    "ult_f": "!({0} >= {1})",
    "ule_f": "!({0} > {1})",
    "une": "{0} != {1}",
    "uno": "{0} != {0} || {1} != {1}",
    "true": "true",
    "false": "false",
}


def refused(op: Op, what: str) -> UnsupportedKernelError:
    """Return the error for an op that is not compiled."""
    return UnsupportedKernelError(
        f"{op.place}: {what} is not compiled for the host. Write it with other ops of Triton, or set "
        "TRITON_INTERPRET=1 before triton is imported, which runs kernels in Python."
    )


def type_name(op: Op, kind: object) -> str:
    """Return the C++ type of an element; raises UnsupportedKernelError where there is none."""
    element = element_of(kind)  # type: ignore[arg-type]
    name = cpp_type(element)
    if name is None:
        raise refused(op, f"the type {element}")
    return name


def expression(op: Op, arguments: Sequence[str]) -> str:
    """Return C++ of the type of the op's result, for an element of it."""
    kind = type_name(op, op.results[0].type)
    name = op.name
    if name in _CASTS:
        return _CASTS[name](op, list(arguments), kind)
    source = type_name(op, op.operands[0].type) if op.operands else kind
    text = _BINARY.get(name) or _UNARY.get(name)
    if name in ("arith.cmpi", "arith.cmpf"):
        predicate = op.attributes["words"][0]
        if name == "arith.cmpf":
            arguments = [f"{_computed(source)}({argument})" for argument in arguments]
            if predicate + "_f" in _COMPARED:
                predicate += "_f"
        text = _COMPARED[predicate]
    elif name.startswith("math.") and name[5:] in _MATH:
        text = name[5:] + "({F}({0}))"
    elif name == "math.fma":
        text = "fma({F}({0}), {F}({1}), {F}({2}))"
    elif name == "arith.select":
        return f"({arguments[0]} ? {arguments[1]} : {arguments[2]})"
    elif name == "tt.clampf":
        is_nan_kept = op.attributes.get("propagateNan") == "all"
        text = (
            "{0} != {0} ? {F}({0}) : min_number<{F}>(max_number<{F}>({0}, {1}), {2})"
            if is_nan_kept
            else "min_number<{F}>(max_number<{F}>({0}, {1}), {2})"
        )
    elif name == "tt.addptr":
        pointer = element_of(op.operands[0].type)
        assert isinstance(pointer, Pointer)
        return f"({arguments[0]} + int64_t({arguments[1]}) * {byte_size(pointer.pointee)})"
    elif name == "tt.extern_elementwise":
        symbol = str(op.attributes.get("symbol"))
        called = libdevice.translated(symbol, list(arguments), kind)
        if called is None:
            raise refused(op, f"the library function {symbol}")
        return called
    elif name == "ub.poison":
        return f"{kind}()"
    if text is None:
        raise refused(op, f"the op {name}")
    bits = element_of(op.results[0].type)
    filled = text.format(
        *arguments,
        T=source,
        U=unsigned(source),
        F=_computed(source),
        bits=bits.bits if isinstance(bits, Scalar) else 64,
    )
    return f"{kind}({filled})"


def extended(op: Op, arguments: Sequence[str]) -> list[str]:
    """Return C++ of both results of an op: the low and the high half of a product, a sum and its carry."""
    kind = type_name(op, op.results[0].type)
    a, b = arguments
    if op.name == "arith.addui_extended":
        return [f"{kind}({a} + {b})", f"({unsigned(kind)}({a} + {b}) < {unsigned(kind)}({a}))"]
    wide = "__int128" if kind == "int64_t" else "int64_t"
    narrow = kind if op.name == "arith.mulsi_extended" else unsigned(kind)
    wide = (
        wide if op.name == "arith.mulsi_extended" else f"unsigned {wide}" if kind == "int64_t" else "uint64_t"
    )
    bits = 64 if kind == "int64_t" else 32
    return [f"{kind}({a} * {b})", f"{kind}({wide}({narrow}({a})) * {wide}({narrow}({b})) >> {bits})"]


def combination(name: str, kind: str, a: str, b: str) -> str:
    """Return C++ of two elements combined by an op, as a reduction does it."""
    return _BINARY[name].format(a, b, T=kind, U=unsigned(kind), F=_computed(kind))


def _computed(name: str) -> str:
    """Return the type that a float is computed in."""
    return "double" if name == "double" else "float"


def _truncated(op: Op, arguments: list[str], kind: str) -> str:
    rounding = str(op.attributes.get("rounding", ""))
    words = [*op.attributes.get("words", ()), rounding]
    if "toward_zero" in words or "rtz" in words:
        return f"rounded_down<{kind}>({arguments[0]})"
    return f"{kind}({_computed(type_name(op, op.operands[0].type))}({arguments[0]}))"


def _extended(op: Op, arguments: list[str], kind: str) -> str:
    source = type_name(op, op.operands[0].type)
    # A truth value that is extended by its sign is 0 or −1.
    return f"{kind}(-int8_t({arguments[0]}))" if source == "bool" else f"{kind}({arguments[0]})"


def _narrowed(op: Op, arguments: list[str], kind: str) -> str:
    return f"bool({arguments[0]} & 1)" if kind == "bool" else f"{kind}({arguments[0]})"


def _bits(op: Op, arguments: list[str], kind: str) -> str:
    source = type_name(op, op.operands[0].type)
    if source == kind:
        return arguments[0]
    if kind == "bool" or source == "bool":
        return f"{kind}({arguments[0]})"
    return f"bits_as<{kind}, {source}>({arguments[0]})"


def _to_whole(op: Op, arguments: list[str], kind: str) -> str:
    source = type_name(op, op.operands[0].type)
    value = f"{_computed(source)}({arguments[0]})"
    if kind == "bool":
        return f"({value} != 0)"
    if op.name == "arith.fptoui":
        return f"{kind}(whole<{unsigned(kind)}>({value}))"
    return f"whole_i32({value})" if kind == "int32_t" and source != "double" else f"whole<{kind}>({value})"


def _to_float(op: Op, arguments: list[str], kind: str) -> str:
    source = type_name(op, op.operands[0].type)
    value = arguments[0]
    if op.name == "arith.uitofp":
        value = f"{unsigned(source)}({value})"
    elif source == "bool":
        value = f"-int8_t({value})"
    return f"{kind}({value})"


_CASTS: dict[str, Callable[[Op, list[str], str], str]] = {
    "arith.extsi": _extended,
    "arith.extui": lambda op, a, kind: f"{kind}({unsigned(type_name(op, op.operands[0].type))}({a[0]}))",
    "arith.trunci": _narrowed,
    "arith.extf": lambda op, a, kind: f"{kind}(float({a[0]}))",
    "arith.truncf": _truncated,
    "tt.fp_to_fp": _truncated,
    "arith.bitcast": _bits,
    "tt.bitcast": _bits,
    "tt.int_to_ptr": lambda op, a, kind: f"int64_t({a[0]})",
    "tt.ptr_to_int": lambda op, a, kind: f"{kind}({a[0]})",
    "arith.index_cast": lambda op, a, kind: f"{kind}({a[0]})",
    "arith.index_castui": lambda op, a, kind: (
        f"{kind}({unsigned(type_name(op, op.operands[0].type))}({a[0]}))"
    ),
    "arith.fptosi": _to_whole,
    "arith.fptoui": _to_whole,
    "arith.sitofp": _to_float,
    "arith.uitofp": _to_float,
}
