"""Names of ``torch.cuda`` for errors that are raised, and for objects of NVIDIA's that are not there."""

import torch

from torch_loom.cuda.names.green_contexts import GreenContext
from torch_loom.cuda.names.not_applicable import class_, function
from torch_loom.errors import DeferredCallError, LoomError

__all__ = [
    "AcceleratorError",
    "CudaError",
    "DeferredCallError",
    "DeferredCudaCallError",
    "GreenContext",
    "LoomError",
    "OutOfMemoryError",
    "check_error",
    "cudaStatus",
    "cudart",
    "current_blas_handle",
    "current_solver_handle",
    "get_gencode_flags",
]

AcceleratorError = torch.AcceleratorError
OutOfMemoryError = torch.OutOfMemoryError
CudaError = LoomError
DeferredCudaCallError = DeferredCallError

check_error = function("check_error")
cudaStatus = class_("cudaStatus")  # noqa: N816 (CUDA's name)
cudart = function("cudart")
current_blas_handle = function("current_blas_handle")
current_solver_handle = function("current_solver_handle")
get_gencode_flags = function("get_gencode_flags")
