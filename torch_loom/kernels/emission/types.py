"""C++'s names of types and constants."""

from __future__ import annotations

import math
from typing import Any

from torch_loom.kernels.ttir.model import Dense, Pointer, Scalar, Type
from torch_loom.kernels.ttir.scanner import Bits

_NAMES = {
    "i1": "bool",
    "i8": "int8_t",
    "i16": "int16_t",
    "i32": "int32_t",
    "i64": "int64_t",
    "index": "int64_t",
    "f16": "f16",
    "bf16": "bf16",
    "f32": "float",
    "f64": "double",
}
FLOAT8 = {"f8E5M2", "f8E4M3FN", "f8E4M3B11FNUZ", "f8E4M3FNUZ", "f8E5M2FNUZ"}


def cpp_type(kind: Type) -> str | None:
    """Return the C++ type of a number or an address; None where there is none."""
    if isinstance(kind, Pointer):
        return "int64_t"
    if not isinstance(kind, Scalar):
        return None
    return kind.name if kind.name in FLOAT8 else _NAMES.get(kind.name)


def unsigned(name: str) -> str:
    """Return the unsigned type as wide as a whole number's."""
    return name if name == "bool" else f"u{name}"


def byte_size(kind: Type) -> int:
    """Return how many bytes a number takes in memory."""
    return 8 if isinstance(kind, Pointer) else max(kind.bits // 8, 1) if isinstance(kind, Scalar) else 0


def literal(value: Any, kind: Type) -> str:
    """Return C++ for a constant."""
    if isinstance(value, Dense):
        value = value.values[0]
    name = cpp_type(kind)
    if isinstance(kind, Scalar) and kind.is_float:
        if isinstance(value, Bits):
            return f"from_bits<{name}>({int(value)})"
        return _float(float(value), kind.name)
    if name == "bool":
        return "true" if value else "false"
    return whole(int(value), kind.bits if isinstance(kind, Scalar) else 64)


def whole(value: int, bits: int) -> str:
    """Return C++ for a signed whole number."""
    bits = 64 if bits == 0 else bits
    value = (value + (1 << (bits - 1))) % (1 << bits) - (1 << (bits - 1))
    if bits == 64:
        return "INT64_MIN" if value == -(2**63) else f"INT64_C({value})"
    if bits == 32:
        return "INT32_MIN" if value == -(2**31) else str(value)
    return f"int{bits}_t({value})"


def _float(value: float, name: str) -> str:
    double = name == "f64"
    if math.isnan(value):
        text = "double(NAN)" if double else "float(NAN)"
    elif math.isinf(value):
        text = ("-" if value < 0 else "") + ("double(INFINITY)" if double else "INFINITY")
    else:
        text = f"{value.hex()}" + ("" if double else "f")
    return text if name in ("f32", "f64") else f"{_NAMES.get(name, name)}({text})"
