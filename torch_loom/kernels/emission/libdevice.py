"""Functions of NVIDIA's library libdevice, each as an expression of C++."""

from __future__ import annotations

import re

# Functions of `functions.h` and `libdevice.h`, by the names that they share with the library.
_SAME = {
    *(
        "exp",
        "exp2",
        "exp10",
        "expm1",
        "log",
        "log2",
        "log10",
        "log1p",
        "logb",
        "sqrt",
        "rsqrt",
        "cbrt",
        "pow",
    ),
    *(
        "sin",
        "cos",
        "tan",
        "asin",
        "acos",
        "atan",
        "atan2",
        "sinh",
        "cosh",
        "tanh",
        "asinh",
        "acosh",
        "atanh",
    ),
    *("erf", "erfc", "erfinv", "lgamma", "tgamma", "j0", "j1", "y0", "y1", "floor", "ceil", "trunc", "round"),
    *("rint", "nearbyint", "fabs", "fmod", "remainder", "hypot", "copysign", "nextafter", "fdim", "fmax"),
    *(
        "fmin",
        "fma",
        "jn",
        "yn",
        "cyl_bessel_i0",
        "cyl_bessel_i1",
        "erfcinv",
        "normcdfinv",
        "norm3d",
        "norm4d",
    ),
}
_TEXTS = {
    "abs": "{0} < 0 ? -{0} : {0}",
    "llabs": "{0} < 0 ? -{0} : {0}",
    "isnan": "({0} != {0})",
    "isinf": "(fabs({0}) == INFINITY)",
    "finite": "(fabs({0}) < INFINITY)",
    "isfinite": "(fabs({0}) < INFINITY)",
    "signbit": "int32_t(std::signbit({0}))",
    "powi": "pow_whole<{T}>({0}, {1})",
    "mulhi": "int32_t(int64_t({0}) * {1} >> 32)",
    "umulhi": "int32_t(high_product(uint32_t({0}), uint32_t({1})))",
    "mul64hi": "int64_t(__int128({0}) * {1} >> 64)",
    "umul64hi": "int64_t(high_product(uint64_t({0}), uint64_t({1})))",
    "mul24": "(int32_t(uint32_t({0}) << 8) >> 8) * (int32_t(uint32_t({1}) << 8) >> 8)",
    "umul24": "int32_t((uint32_t({0}) & 0xffffffu) * (uint32_t({1}) & 0xffffffu))",
    "max": "({0} > {1} ? {0} : {1})",
    "min": "({0} < {1} ? {0} : {1})",
    "clz": "({0} == 0 ? 32 : __builtin_clz({0}))",
    "clzll": "({0} == 0 ? 64 : __builtin_clzll({0}))",
    "popc": "__builtin_popcount({0})",
    "popcll": "__builtin_popcountll({0})",
    "ffs": "__builtin_ffs({0})",
    "ffsll": "__builtin_ffsll({0})",
    "brev": "int32_t(reversed(uint32_t({0})))",
    "brevll": "int64_t(reversed(uint64_t({0})))",
    "byte_perm": "int32_t(bytes_of(uint32_t({0}), uint32_t({1}), uint32_t({2})))",
    "hadd": "int32_t((int64_t({0}) + {1}) >> 1)",
    "rhadd": "int32_t((int64_t({0}) + {1} + 1) >> 1)",
    "uhadd": "int32_t((uint64_t(uint32_t({0})) + uint32_t({1})) >> 1)",
    "urhadd": "int32_t((uint64_t(uint32_t({0})) + uint32_t({1}) + 1) >> 1)",
    "sad": "int32_t(({0} > {1} ? uint32_t({0}) - {1} : uint32_t({1}) - {0}) + uint32_t({2}))",
    "usad": "int32_t((uint32_t({0}) > uint32_t({1}) ? uint32_t({0}) - {1} : uint32_t({1}) - {0}) + {2})",
    "saturate": "min_number(max_number({0}, 0.f), 1.f)",
    "fast_fdividef": "({0} / {1})",
    "frsqrt_rn": "float(1 / ::sqrt(double({0})))",
    "rcbrt": "{T}(1 / ::cbrt(double({0})))",
    "rcp64h": "bits_as<double>(bits_as<uint64_t>(1 / {0}) & 0xffffffff00000000u)",
    "ldexp": "{T}(::ldexp(double({0}), {1}))",
    "scalbn": "{T}(::ldexp(double({0}), {1}))",
    "ilogb": "int32_t(::ilogb({0}))",
    "normcdf": "{T}(0.5 * ::erfc(-double({0}) * 0.70710678118654752))",
    "cospi": "{T}(::cos(3.14159265358979324 * ::remainder(double({0}), 2.)))",
    "sinpi": "{T}(::sin(3.14159265358979324 * ::remainder(double({0}), 2.)))",
    "erfcx": "{T}(::exp(double({0}) * double({0})) * ::erfc(double({0})))",
    "rhypot": "{T}(1 / ::hypot(double({0}), double({1})))",
    "rnorm3d": "{T}(1 / norm3d(double({0}), double({1}), double({2})))",
    "rnorm4d": "{T}(1 / norm4d(double({0}), double({1}), double({2}), double({3})))",
    "llrint": "whole<int64_t>(rint({0}))",
    "llround": "whole<int64_t>(round({0}))",
    "float_as_int": "bits_as<int32_t>({0})",
    "float_as_uint": "bits_as<int32_t>({0})",
    "int_as_float": "bits_as<float>({0})",
    "uint_as_float": "bits_as<float>({0})",
    "double_as_longlong": "bits_as<int64_t>({0})",
    "longlong_as_double": "bits_as<double>({0})",
    "double2hiint": "int32_t(bits_as<uint64_t>({0}) >> 32)",
    "double2loint": "int32_t(bits_as<uint64_t>({0}))",
    "hiloint2double": "bits_as<double>(uint64_t(uint32_t({0})) << 32 | uint32_t({1}))",
}
_ROUNDED_OPS = {
    "add": "{0} + {1}",
    "sub": "{0} - {1}",
    "mul": "{0} * {1}",
    "div": "{0} / {1}",
    "rcp": "1 / {0}",
    "sqrt": "__builtin_sqrt{f}({0})",
    "fma": "__builtin_fma{f}({0}, {1}, {2})",
}
_ROUNDED_OP = re.compile(r"[fd]?(add|sub|mul|div|rcp|sqrt|fma)f?_r([nzdu])")
_CONVERSION = re.compile(r"(float|double|int|uint|ll|ull)2(float|double|int|uint|ll|ull)_r([nzdu])")
_WHOLE = {"n": "rint", "z": "trunc", "d": "floor", "u": "ceil"}
_MODES = {"n": "0x000", "d": "0x400", "u": "0x800", "z": "0xc00"}
_TYPES = {
    "float": "float",
    "double": "double",
    "int": "int32_t",
    "uint": "uint32_t",
    "ll": "int64_t",
    "ull": "uint64_t",
}


def translated(symbol: str, arguments: list[str], kind: str) -> str | None:
    """Return C++ of a call; None where the function is not known.

    Args:
        symbol: the function's name in the library.
        arguments: C++ of its arguments.
        kind: the C++ type of its result.
    """
    name = symbol.removeprefix("__nv_").removeprefix("__ocml_").removesuffix("_f32").removesuffix("_f64")
    wide = "double" if kind == "double" else "float"
    found = _ROUNDED_OP.fullmatch(name)
    if found:
        text = _ROUNDED_OPS[found[1]]
        if found[2] == "n":
            return f"{kind}({text.format(*arguments, f='f' if wide == 'float' else '')})"
        names = [f"x{number}" for number in range(len(arguments))]
        given = "".join(f", {argument}" for argument in arguments)
        parameters = ", ".join(f"{wide} {each}" for each in names)
        text = text.format(*names, f="f" if wide == "float" else "")
        return (
            f"{kind}(rounded_as({_MODES[found[2]]}, []({parameters}) -> {wide} {{ return {text}; }}{given}))"
        )
    found = _CONVERSION.fullmatch(name)
    if found:
        source, to, mode = _TYPES[found[1]], _TYPES[found[2]], found[3]
        if "int" in to:
            return f"{kind}(whole<{to}>({_WHOLE[mode]}({arguments[0]})))"
        return (
            f"{kind}(rounded_as({_MODES[mode]}, []({source} x) -> {to} {{ return {to}(x); }}, "
            f"{source}({arguments[0]})))"
        )
    for known in (name, name.removesuffix("f"), name.removesuffix("d"), name.removeprefix("fast_")):
        for each in (known, known.removesuffix("f")):
            if each in _SAME:
                return f"{kind}({each}({', '.join(arguments)}))"
            if each in _TEXTS:
                return f"{kind}({_TEXTS[each].format(*arguments, T=wide)})"
    return None
