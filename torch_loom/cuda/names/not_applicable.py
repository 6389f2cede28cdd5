"""The names of ``torch.cuda`` that stand for objects of NVIDIA's libraries: using one says why it is not."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NoReturn

from torch_loom import config
from torch_loom.errors import NotApplicableError

DEVICE_TYPE = config.device_name()

_RUNTIME = "the CUDA runtime library", "commands go to a loom driver; its errors are raised as exceptions"
_TUNING = (
    "TunableOp, which times the GEMM kernels of cuBLAS and rocBLAS",
    "there is one kernel for each op here",
)
_STORAGE = "cuFile, NVIDIA's GPUDirect Storage", "files reach a device through the host: read and copy"
_PARTITION = "a CUDA green context, a share of a GPU's multiprocessors", "a loom device is not divided"
_NCCL = "a communicator of NCCL", "the collectives here are copies and additions in one process"
_NODES = "a node of CUDA's graphs, as cuda.bindings reads it", "a graph keeps commands of the tape"

# The name without its module's prefix -> the object that it stands for, and why there is none.
REASONS: dict[str, tuple[str, str]] = {
    "cudart": _RUNTIME,
    "check_error": _RUNTIME,
    "cudaStatus": _RUNTIME,
    "current_blas_handle": ("a cuBLAS handle", "matrix products are the driver's own kernels"),
    "current_solver_handle": ("a cuSOLVER handle", "solvers are the driver's own kernels"),
    "get_gencode_flags": ("nvcc's options", "programs are not compiled for a GPU's instruction set"),
    "GreenContext": _PARTITION,
    **{f"gds.{name}": _STORAGE for name in ("GdsFile", "gds_deregister_buffer", "gds_register_buffer")},
    **{f"nccl.{name}": _NCCL for name in ("init_rank", "unique_id", "version")},
    **{
        f"_graph_annotations.{name}": _NODES
        for name in (
            *("_check_cuda_bindings", "_collect_descendants", "_get_annotatable_types"),
            *("_get_capture_state", "_get_dependent_nodes", "_get_root_nodes"),
        )
    },
    **{f"tunable.{name}": _TUNING for name in ("mgpu_tune_gemm_in_file", "tune_gemm_in_file")},
}


def refuse(name: str) -> NoReturn:
    """Raise NotApplicableError for a name of :data:`REASONS`."""
    thing, reason = REASONS[name]
    raise NotApplicableError(f"torch.{DEVICE_TYPE}.{name} stands for {thing}: {reason}")


def function(name: str) -> Callable[..., NoReturn]:
    """Return the function of that name, which raises."""

    def refused(*args: Any, **kwargs: Any) -> NoReturn:
        refuse(name)

    refused.__name__ = refused.__qualname__ = name.rpartition(".")[2]
    refused.__doc__ = f"Raise NotApplicableError: it stands for {REASONS[name][0]}."
    return refused


class _Refused(type):
    """The class of the classes that raise: when called, derived from and called, or asked for a name."""

    def __call__(cls, *args: Any, **kwargs: Any) -> NoReturn:
        refuse(cls._name)

    def __getattr__(cls, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        refuse(cls._name)


def class_(name: str) -> type:
    """Return the class of that name, which raises when it is used."""
    doc = f"Raises NotApplicableError: it stands for {REASONS[name][0]}."
    names = {"__doc__": doc, "__module__": f"torch.{DEVICE_TYPE}", "_name": name}
    return _Refused(name.rpartition(".")[2], (), names)


def functions(module: str) -> dict[str, Callable[..., NoReturn]]:
    """Return all functions of a module that the table lists, by their names there."""
    prefix = module + "."
    return {name[len(prefix) :]: function(name) for name in REASONS if name.startswith(prefix)}
