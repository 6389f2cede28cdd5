"""The options of tt-xla's compiler: what each means here, and which are declined."""

from __future__ import annotations

import difflib
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from pathlib import Path
from typing import Any

from torch_loom.errors import CompilerOptionError

WEIGHT_FORMATS = {"bfp_bf8": "Bfp8_b", "bfp_bf4": "Bfp4_b", "bf16": "Float16_b"}
FIDELITIES = {"lofi": "LoFi", "hifi2": "HiFi2", "hifi3": "HiFi3", "hifi4": "HiFi4", "ttnn_default": "HiFi4"}

_TTNN = "it is a stage of tt-mlir's TTNN pipeline, which is not here"
_CONSTEVAL = "parameters are inputs of a compiled graph, so that they can be trained; nothing is folded"
DECLINED_OPTIONS = {
    "backend": "TTNN's C++ and flatbuffers are not written; codegen_py() writes the graph as Python",
    "codegen_split_files": _TTNN,
    "codegen_try_recover_structure": _TTNN,
    "enable_activation_dtype_lowering": _TTNN,
    "enable_const_eval": _CONSTEVAL,
    "enable_const_eval_on_cpu": _CONSTEVAL,
    "enable_const_eval_inputs_to_system_memory": _CONSTEVAL,
    "enable_create_d2m_subgraphs": _TTNN,
    "experimental_enable_dram_space_saving_optimization": _TTNN,
    "experimental_enable_fusing_conv2d_with_multiply_pattern": _TTNN,
    "experimental_enable_permute_matmul_fusion": _TTNN,
    "experimental_kv_cache_dtype": "caches are the program's tensors: numerics.quantize rounds them",
    "export_tensors": "tensors are the program's: torch.save writes them",
    "target_module": _TTNN,
    "tt_enable_composite_ops": _TTNN,
    "tt_enable_torch_fx_fusion_pass": _TTNN,
    "tt_experimental_compile": "there is one way to compile",
    "tt_lazy_execution": "graphs run when they are called; torch.loom streams are asynchronous",
    "tt_use_aot_autograd": "AOTAutograd is always used",
    "ttnn_perf_metrics_enabled": "loom's profiler and loom compile say what takes time",
    "ttnn_perf_metrics_output_file": "loom's profiler and loom compile say what takes time",
}
"""Options of tt-xla that raise, and why."""

_SPARSE = "experts run as PyTorch has them"
DECLINED_NAMES = {
    "A2aSparseMLP": _SPARSE,
    "SparseMLP": _SPARSE,
    "enable_sparse_mlp": _SPARSE,
    "codegen_cpp": "TTNN's C++ is not written; codegen_py() writes the graph as Python",
    "mark_module_user_inputs": "AOTAutograd says which inputs are parameters",
    "parse_compiled_artifacts_from_cache": "torch_loom.compile writes images: Executable.save",
    "parse_compiled_artifacts_from_cache_to_disk": "torch_loom.compile writes images: Executable.save",
    "save_system_descriptor_to_disk": "chips are described by TOML files: loom chips",
    "sharding_constraint_hook": "tensors are distributed by torch.distributed",
    "tt_lang_operation": "kernels are written in Triton or CUDA C++",
}
"""Names of tt_torch that raise, and what to use instead."""


MAX_NAME = 128
"""Characters of the name of a file: the name of the graph comes behind it."""


def _flag(value: Any) -> bool:
    text = str(value).lower()
    if text not in ("true", "false", "1", "0"):
        raise ValueError("True or False")
    return text in ("true", "1")


def _level(value: Any) -> int:
    if str(value) not in ("0", "1", "2"):
        raise ValueError("0, 1 or 2")
    return int(value)


def _one_of(*allowed: str) -> Callable[[Any], str]:
    def check(value: Any) -> str:
        if value not in allowed:
            raise ValueError(" or ".join(map(repr, allowed)))
        return str(value)

    return check


def _path(value: Any) -> Path | None:
    if not isinstance(value, str | os.PathLike | None):
        raise ValueError("the path of a folder, or None")
    return None if value is None else Path(value)


def _file_name(value: Any) -> str:
    if not isinstance(value, str) or value != Path(value).name or "\0" in value or len(value) > MAX_NAME:
        raise ValueError("what names of files begin with, without a folder")
    return value


@dataclass(frozen=True)
class TTOptions:
    """The options that mean something here, with tt-xla's defaults."""

    optimization_level: int = 0
    math_fidelity: str = "hifi4"
    fp32_dest_acc_en: bool = True
    experimental_weight_dtype: str = ""
    enable_trace: bool = False
    export_path: Path | None = None
    export_model_name: str = ""
    dry_run: bool = False
    tt_legacy_compile: bool = False


EFFECTS: dict[str, tuple[Callable[[Any], Any], str]] = {
    "optimization_level": (
        _level,
        "plans: 0: each op is a kernel; 1, 2: small ops run in the kernel of the op before; values stay",
    ),
    "math_fidelity": (_one_of(*FIDELITIES), f"passes of a product: {', '.join(FIDELITIES)}"),
    "fp32_dest_acc_en": (_flag, "sums are kept in Float32; else in 16 bits"),
    "experimental_weight_dtype": (
        _one_of("", "bfp_bf8", "bfp_bf4"),
        "the format of parameters that are the second operand of a product: bfp_bf8 or bfp_bf4",
    ),
    "enable_trace": (_flag, "inference is captured once and replayed"),
    "export_path": (_path, "a folder for each graph's ops, as JSON, and as Python"),
    "export_model_name": (_file_name, "how files in export_path begin"),
    "dry_run": (_flag, "everything but the run: results and gradients are zeros"),
    "tt_legacy_compile": (_flag, "taken; there is one way to compile"),
}
"""For each option what it takes, and what it changes."""

_custom: dict[str, Any] = {}


def parsed(given: Mapping[str, Any] | None, mode: str | None = None) -> TTOptions:
    """Return the options of a compilation, over those of :func:`set_custom_compile_options`.

    Args:
        mode: what ``torch.compile`` was given beside them.

    Raises:
        CompilerOptionError: an option or mode that does not exist, or an option that is declined or has a bad
            value.
    """
    _check_mode(mode)
    return _parsed(given, _custom)


def _check_mode(mode: str | None) -> None:
    import torch._inductor

    known = list(torch._inductor.list_mode_options())
    if mode is not None and mode not in known:
        near = difflib.get_close_matches(str(mode), known, 1)
        hint = f"; do you mean {near[0]!r}?" if near else ""
        raise CompilerOptionError(f"mode={mode!r}: it is one of PyTorch's, {', '.join(known)}{hint}")


def _parsed(given: Mapping[str, Any] | None, custom: Mapping[str, Any]) -> TTOptions:
    if not isinstance(given, Mapping | None) or not all(isinstance(name, str) for name in given or ()):
        raise CompilerOptionError(
            f'options={given!r}: it takes a dictionary of options by name: {{"math_fidelity": "hifi2"}}'
        )
    values = {}
    for name, value in {**custom, **(given or {})}.items():
        if name in DECLINED_OPTIONS:
            raise CompilerOptionError(f"{name}={value!r} is declined: {DECLINED_OPTIONS[name]}. Leave it out")
        if name not in EFFECTS:
            near = difflib.get_close_matches(name, EFFECTS, 1)
            hint = f"do you mean {near[0]}?" if near else f"There are {', '.join(EFFECTS)}"
            raise CompilerOptionError(f"{name} is no option of the backend tt: {hint}")
        try:
            values[name] = EFFECTS[name][0](value)
        except (TypeError, ValueError) as error:
            raise CompilerOptionError(f"{name}={value!r}: it takes {error}") from None
    return TTOptions(**values)


def set_custom_compile_options(options: Mapping[str, Any]) -> None:
    """Set options for what is compiled from now on, in place of those set before; ``{}`` sets none.

    Raises:
        CompilerOptionError: an option that does not exist, is declined, or has a bad value; the options set
            before stay.
    """
    global _custom
    if options is None:
        raise CompilerOptionError(
            "set_custom_compile_options(None): it takes a dictionary; {} sets no option"
        )
    _parsed(options, {})
    _custom = dict(options)


def get_custom_compile_options() -> dict[str, Any]:
    """Return what :func:`set_custom_compile_options` has set."""
    return dict(_custom)


def defaults() -> dict[str, Any]:
    """Return the default of each option."""
    return {field.name: field.default for field in fields(TTOptions)}
