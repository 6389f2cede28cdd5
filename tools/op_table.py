"""Writes what C++ needs of the op table: `python -m tools.op_table`; with --check it only compares.

Beside the table it reads PyTorch's own declarations, which ship in its wheel: which ops check devices as
TensorIterator does (`device_check: NoCheck`), and which have a C++ shape function in `at::meta`.
"""

from __future__ import annotations

import argparse
import functools
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

import torch
import torchgen
from torchgen.api.types import CppSignatureGroup
from torchgen.context import native_function_manager
from torchgen.gen import parse_native_yaml
from torchgen.model import DeviceCheckType, NativeFunction

from torch_loom import ops
from torch_loom.cuda.nondeterminism import ALERTS, CASES
from torch_loom.cuda.refusals import (
    CPU_LIBRARIES,
    ON_CUDA_TOO,
    REFUSAL_CASES,
    REFUSALS,
    TAKES,
    Refusal,
)
from torch_loom.cuda.widening import WIDENED, WIDENED_SETS, WIDENED_SPARSE
from torch_loom.ops.model import FLAGS

ROOT = Path(__file__).parents[1]
Entry = TypeVar("Entry")

HEAD = "// Written by `python -m tools.op_table` from torch_loom/ops; do not edit.\n"


@functools.cache
def declared() -> dict[str, NativeFunction]:
    """Return PyTorch's own ops by name, `aten::add.Tensor`."""
    folder = Path(torchgen.__file__).parent / "packaged/ATen/native"
    parsed = parse_native_yaml(str(folder / "native_functions.yaml"), str(folder / "tags.yaml"))
    return {f"aten::{function.func.name}": function for function in parsed.native_functions}


def op_names() -> list[str]:
    """Return all ops of `aten` that PyTorch has, and ours in the table, sorted."""
    names: list[str] = torch._C._dispatch_get_all_op_names()
    own = [name for family in ops.FAMILIES for name in family.patterns if name.startswith("loom_")]
    return sorted([*(name for name in names if name.startswith("aten::")), *own])


def facts_of(op: str) -> frozenset[str]:
    """Return the facts of the table and those that PyTorch declares."""
    own = ops.facts_of(op)
    function = declared().get(op)
    takes_scalars = function is not None and function.device_check == DeviceCheckType.NoCheck
    return own | {"host_scalars"} if takes_scalars else own


def ops_with(fact: str) -> list[str]:
    """Return the ops that a fact holds for; the table must not name an op that PyTorch lacks."""
    return [op for op in op_names() if fact in facts_of(op)]


def op_facts() -> str:
    """Return the rows of `op_facts.cpp`: each op that is not as the defaults say."""
    rows = []
    for op in op_names():
        shape_class = ops.family_of(op).shape_class
        own = facts_of(op)
        flags = sum(1 << bit for bit, fact in enumerate(FLAGS) if fact in own)
        kernel = ops.fused_kernel_of(op)
        needed = f", FusedKernel::{enumerator(kernel)}" if kernel is not None else ""
        if shape_class != ops.DEFAULT.shape_class or flags or needed:
            rows.append(f'{{"{op}", ShapeClass::{enumerator(shape_class)}, {flags}{needed}}},\n')
    return HEAD + "".join(rows)


def op_flags() -> str:
    """Return the constants of the facts that a running op is asked for, a bit each."""
    return HEAD + "".join(
        f"// {ops.FACTS[fact]}\ninline constexpr uint16_t {enumerator(fact)} = {1 << bit};\n"
        for bit, fact in enumerate(FLAGS)
    )


def shape_classes() -> str:
    """Return the shape classes, each by its enumerator and by its name."""
    return HEAD + "".join(f'LOOM_SHAPE_CLASS({enumerator(name)}, "{name}")\n' for name in ops.SHAPE_CLASSES)


def fused_kernels() -> str:
    """Return the fused kernels, each by its enumerator and by its name, below what it does."""
    return HEAD + "".join(
        f'// {meaning}\nLOOM_FUSED_KERNEL({enumerator(name)}, "{name}")\n'
        for name, meaning in ops.FUSED_KERNELS.items()
    )


def alerts() -> str:
    """Return the ops that alert of nondeterminism, by their whole names, sorted."""
    return rows_of(
        ALERTS,
        lambda op, own: f'{{"{op}", "{own.kernel}", Alert::Case::{enumerator(own.case)}}}',
    )


def alert_cases() -> str:
    """Return the enumerators of the cases in which an op alerts; C++ must decide each of them."""
    return enumerators(CASES)


def refusals() -> str:
    """Return what CUDA refuses of ops, by their whole names, sorted."""

    def row(op: str, refusal: Refusal) -> str:
        takes, case = enumerator(refusal.takes), enumerator(refusal.case)
        function = declared().get(op)
        num_out = len(function.func.arguments.out) if function is not None else 0
        return f'{{"{op}", "{refusal.kernel}", {takes}, Refusal::Case::{case}, {num_out}}}'

    libraries = [
        row(op, Refusal("", "nothing", "absent"))
        for op in sorted(torch._C._dispatch_get_registrations_for_dispatch_key("CPU"))
        if op.partition("::")[0] in CPU_LIBRARIES and op not in ON_CUDA_TOO
    ]
    rows = rows_of(REFUSALS, row).removeprefix(HEAD).splitlines(keepends=True)
    return HEAD + "".join(sorted([*rows, *(f"{each},\n" for each in libraries)]))


def refusal_cases() -> str:
    """Return the enumerators of the cases in which an op is refused; C++ must decide each of them."""
    return enumerators(REFUSAL_CASES)


def refusal_dtypes() -> str:
    """Return the sets of dtypes that kernels take."""
    return dtype_sets(TAKES)


def widened() -> str:
    """Return the ops that the engine computes in wider dtypes than their operands', sorted."""
    of_lists = {f"_foreach_{op}": narrow for op, narrow in WIDENED.items() if "." not in op}
    return rows_of(of_lists | WIDENED, lambda op, narrow: f'{{"{op}", {enumerator(narrow)}}}')


def widened_sparse() -> str:
    """Return the same for calls with a sparse operand."""
    return rows_of(WIDENED_SPARSE, lambda op, narrow: f'{{"{op}", {enumerator(narrow)}}}')


def widened_dtypes() -> str:
    """Return the sets of dtypes that kernels of the engine lack."""
    return dtype_sets(WIDENED_SETS)


def dtype_sets(sets: Mapping[str, Sequence[str]]) -> str:
    """Return a constant for each set."""
    listed = {name: ", ".join(f"Type::{own}" for own in dtypes) for name, dtypes in sets.items()}
    return HEAD + "".join(
        f"constexpr DtypeSet {enumerator(name)} = set_of({{{dtypes}}});\n" for name, dtypes in listed.items()
    )


def rows_of(table: Mapping[str, Entry], row: Callable[[str, Entry], str]) -> str:
    """Return a row for each op that has an entry in a table."""
    entries = ((op, entry_of(table, op)) for op in op_names())
    return HEAD + "".join(f"{row(op, entry)},\n" for op, entry in entries if entry is not None)


def entry_of(table: Mapping[str, Entry], op: str) -> Entry | None:
    """Return the entry of an overload, or that of all overloads of its op."""
    own = op.removeprefix("aten::")
    return table.get(own) or table.get(own.partition(".")[0])


def enumerators(cases: Mapping[str, str]) -> str:
    """Return an enumerator a line, each below what it means."""
    return HEAD + "".join(f"// {meaning}\n{enumerator(case)},\n" for case, meaning in cases.items())


def enumerator(shape_class: str) -> str:
    """Return the C++ name: `gather_scatter` is `kGatherScatter`."""
    return "k" + "".join(part.capitalize() for part in shape_class.split("_"))


def public_names() -> str:
    """Return the pairs of the engine's names and those that chips and reports use."""
    return HEAD + "".join(f'{{"{own}", "{public}"}},\n' for own, public in ops.PUBLIC_NAMES.items())


def whole_ops() -> str:
    """Return name and overload of each composite op that the engine runs whole."""
    names = (op.removeprefix("aten::").partition(".") for op in ops_with("borrows_whole"))
    return HEAD + "".join(f'{{"{name}", "{overload}"}},\n' for name, _, overload in names)


def unboxed_ops() -> str:
    """Return the list of the ops with a kernel of their own signature, by their names in `at::_ops`."""
    names = [
        function.func.name.unambiguous_name()
        for op in ops_with("unboxed")
        if (function := declared().get(op)) is not None
    ]
    return HEAD + "".join(f"LOOM_UNBOXED({name})\n" for name in names)


def unboxed_headers() -> str:
    """Return the includes that the list needs."""
    roots = sorted({declared()[op].root_name for op in ops_with("unboxed")})
    return HEAD + "".join(f"#include <ATen/ops/{root}_ops.h>\n" for root in roots)


@functools.cache
def shape_functions() -> dict[str, tuple[str, str, str]]:
    """Return for each op with one: the name in `at::meta`, its type, and its header."""
    headers = Path(torch.__file__).parent / "include/ATen/ops"
    served = set(torch._C._dispatch_get_registrations_for_dispatch_key("CPU"))
    found = {}
    for op, function in declared().items():
        header = headers / f"{function.root_name}_meta_dispatch.h"
        # Others are declared, but the library exports those of structured ops only.
        is_structured = function.structured or function.structured_delegate is not None
        if op not in served or not is_structured or not header.exists():
            continue
        with native_function_manager(function):
            group = CppSignatureGroup.from_native_function(function, method=False, fallback_binding=False)
            signature = group.faithful_signature or group.signature
            name, type_name, declaration = signature.name(), signature.ptr_type(), signature.decl()
        if f"{declaration};" in header.read_text(encoding="utf-8"):
            found[op] = name, type_name, header.name
    return found


def _is_shaped_in_cpp(op: str) -> bool:
    return not facts_of(op) & {"engine_infers", "python_infers", "not_borrowed"}


def meta_kernels() -> str:
    """Return the table of PyTorch's C++ shape functions."""
    rows = [
        f'LOOM_SHAPE_FUNCTION("{op}", {name}, {type_name})\n'
        for op, (name, type_name, _) in sorted(shape_functions().items())
        if _is_shaped_in_cpp(op)
    ]
    return HEAD + "".join(rows)


def meta_headers() -> str:
    """Return the includes that the table needs."""
    headers = sorted({header for op, (_, _, header) in shape_functions().items() if _is_shaped_in_cpp(op)})
    return HEAD + "".join(f"#include <ATen/ops/{header}>\n" for header in headers)


FILES = {
    "csrc/torch/generated/alerts.inc": alerts,
    "csrc/torch/generated/alert_cases.inc": alert_cases,
    "csrc/torch/generated/op_facts.inc": op_facts,
    "csrc/torch/generated/op_flags.inc": op_flags,
    "csrc/torch/generated/refusals.inc": refusals,
    "csrc/torch/generated/refusal_cases.inc": refusal_cases,
    "csrc/torch/generated/refusal_dtypes.inc": refusal_dtypes,
    "csrc/torch/generated/widened.inc": widened,
    "csrc/torch/generated/widened_sparse.inc": widened_sparse,
    "csrc/torch/generated/widened_dtypes.inc": widened_dtypes,
    "csrc/torch/generated/public_names.inc": public_names,
    "csrc/torch/generated/whole_ops.inc": whole_ops,
    "csrc/torch/generated/unboxed_ops.inc": unboxed_ops,
    "csrc/torch/generated/unboxed_headers.inc": unboxed_headers,
    "csrc/torch/generated/shape_functions.inc": meta_kernels,
    "csrc/torch/generated/shape_function_headers.inc": meta_headers,
    # Below csrc/torch, which csrc/runtime does not know.
    "csrc/runtime/generated/fused_kernels.inc": fused_kernels,
    "csrc/runtime/generated/shape_classes.inc": shape_classes,
}


def contents() -> dict[str, str]:
    """Return the text of each generated file by its path in the repository."""
    return {name: write() for name, write in FILES.items()}


def unknown_ops() -> list[str]:
    """Return the ops that the table names facts, alerts, refusals or dtypes for and PyTorch does not have."""
    known = set(op_names())
    bases = {name.partition(".")[0] for name in known}
    named = {op for family in ops.FAMILIES for names in family.facts.values() for op in names.split()}
    unknown = [
        op
        for op in named
        if (f"aten::{op[:-2]}" not in bases if op.endswith(".*") else f"aten::{op}" not in known)
    ]
    listed = [*ALERTS, *REFUSALS, *WIDENED, *WIDENED_SPARSE]
    return sorted([*unknown, *(op for op in listed if f"aten::{op}" not in known | bases)])


def main(arguments: Sequence[str] | None = None) -> int:
    """Write the files, or say which differ."""
    parser = argparse.ArgumentParser(prog="python -m tools.op_table", description=__doc__)
    parser.add_argument(
        "--check", action="store_true", help="write nothing; fail where a file is out of date"
    )
    options = parser.parse_args(arguments)
    if unknown := unknown_ops():
        print(f"torch_loom/ops names ops that PyTorch does not have: {', '.join(unknown)}")
        return 1
    outdated = []
    for name, text in contents().items():
        path = ROOT / name
        if path.exists() and path.read_text(encoding="utf-8") == text:
            continue
        outdated.append(name)
        if not options.check:
            path.parent.mkdir(exist_ok=True)
            path.write_text(text, encoding="utf-8")
    if outdated:
        print(("out of date: " if options.check else "wrote ") + ", ".join(outdated))
    return 1 if options.check and outdated else 0


if __name__ == "__main__":
    sys.exit(main())
