"""Functions of ``torch._C`` that stand for libraries: cuDNN, NCCL, TunableOp, jiterator, Triton's launcher.

What has a counterpart here is answered by it; the others say what they stand for.
"""

from __future__ import annotations

import enum
from collections.abc import Callable, Mapping
from types import ModuleType
from typing import Any, NoReturn

import torch

from torch_loom.cuda import release
from torch_loom.errors import NotApplicableError

_COMMUNICATOR = "a communicator of NCCL", "the collectives here are copies and additions in one process"
_LAUNCHER = "Triton's kernels compiled for a GPU", "the devices here run none; see docs/cuda.md"

# TunableOp's functions in torch._C, but for their prefix.
_TUNABLE = (
    *("enable", "is_enabled", "tuning_enable", "tuning_is_enabled"),
    *("set_max_tuning_duration", "get_max_tuning_duration"),
    *("set_max_tuning_iterations", "get_max_tuning_iterations"),
    *("set_filename", "get_filename", "read_file", "get_results", "get_validators"),
    *("set_rotating_buffer_size", "get_rotating_buffer_size", "set_numerical_check_tolerances"),
    *("wildcard_fallback_enable", "wildcard_fallback_is_enabled", "clear_all"),
    *("push_dynamic_dims_mask", "pop_dynamic_dims_mask"),
)


def functions(module: ModuleType) -> dict[str, Any]:
    """Return them, by their names in ``torch._C``.

    Args:
        module: the device module, which answers most.
    """
    return {
        "_cudnn": _cudnn(),
        "_cudnn_clear_dropout_state": lambda: None,  # no kernel of it has drawn a number
        "_is_cudnn_attention_decode_disabled": lambda: True,  # cuDNN takes no keys of one row
        **_nccl_functions(module.nccl),
        **{f"_cuda_tunableop_{name}": getattr(module.tunable, name) for name in _TUNABLE},
        "_cuda_record_untuned_enable": module.tunable.record_untuned_enable,
        "_cuda_record_untuned_is_enabled": module.tunable.record_untuned_is_enabled,
        "_cuda_jiterator_compile_and_launch_kernel": _launch_jiterator(module.jiterator),
        "_CUDAGreenContext": module.GreenContext,
        "_StaticCudaLauncher": _static_launcher(),
    }


class RNNMode(enum.IntEnum):
    """cuDNN's numbers of its recurrent layers."""

    rnn_relu = 0
    rnn_tanh = 1
    lstm = 2
    gru = 3


def _cudnn() -> ModuleType:
    def get_version() -> release.Version:
        return release.default_wheel().cudnn

    module: Any = ModuleType("torch._C._cudnn", "The version of cuDNN, of which no kernel runs.")
    module.is_cuda = True
    module.RNNMode = RNNMode
    module.getRuntimeVersion = module.getCompileVersion = get_version
    module.getVersionInt = release.cudnn_number
    return module  # type: ignore[no-any-return]


def _nccl_functions(nccl: Any) -> dict[str, Any]:
    def version() -> int:
        major, minor, patch = release.default_wheel().nccl
        return major << 32 | minor << 16 | patch

    def reduce(inputs: Any, output: Any, root: int, op: int, streams: Any = None, comms: Any = None) -> None:
        nccl.reduce(inputs, output, root, op, streams, comms)

    def all_reduce(inputs: Any, outputs: Any, op: int, streams: Any = None, comms: Any = None) -> None:
        nccl.all_reduce(inputs, outputs, op, streams, comms)

    def reduce_scatter(inputs: Any, outputs: Any, op: int, streams: Any = None, comms: Any = None) -> None:
        nccl.reduce_scatter(inputs, outputs, op, streams, comms)

    return {
        "_nccl_version": version,
        "_nccl_version_suffix": lambda: b"",
        "_nccl_reduce": reduce,
        "_nccl_all_reduce": all_reduce,
        "_nccl_broadcast": lambda inputs, root, streams=None, comms=None: nccl.broadcast(
            inputs, root, streams, comms
        ),
        "_nccl_all_gather": lambda inputs, outputs, streams=None, comms=None: nccl.all_gather(
            inputs, outputs, streams, comms
        ),
        "_nccl_reduce_scatter": reduce_scatter,
        "_nccl_unique_id": _refused("_nccl_unique_id", *_COMMUNICATOR),
        "_nccl_init_rank": _refused("_nccl_init_rank", *_COMMUNICATOR),
    }


def _launch_jiterator(jiterator: Any) -> Callable[..., Any]:
    def launch(
        code: str,
        name: str,
        return_by_ref: bool,
        num_outputs: int,
        tensors: tuple[torch.Tensor, ...],
        numbers: Mapping[str, Any],
    ) -> Any:
        if return_by_ref:
            function = jiterator._create_multi_output_jit_fn(code, num_outputs, **numbers)
        else:
            function = jiterator._create_jit_fn(code, **numbers)
        return function(*tensors)

    return launch


def _static_launcher() -> type:
    names = {
        name: staticmethod(_refused(f"_StaticCudaLauncher.{name}", *_LAUNCHER))
        for name in ("_load_kernel", "_launch_kernel")
    }
    return type("_StaticCudaLauncher", (), {"__module__": "torch._C", **names})


def _refused(name: str, thing: str, reason: str) -> Callable[..., NoReturn]:
    def refuse(*args: Any, **kwargs: Any) -> NoReturn:
        raise NotApplicableError(f"torch._C.{name} stands for {thing}: {reason}")

    refuse.__name__ = refuse.__qualname__ = name
    return refuse
