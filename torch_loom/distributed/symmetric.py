"""Ops of ``torch.ops.symm_mem`` on these devices: kernels of CUDA's in PyTorch, here made of its tensors."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor


def provide(dispatch_key: str) -> None:
    """Register the ops for a dispatch key, that of the device type.

    Ops that need one address for all devices (``multimem_*``), NVSHMEM or NCCL's own are not among them:
    PyTorch says of each that it is not implemented here.
    """
    make: Any = torch.library.Library  # has no types
    library = make("symm_mem", "IMPL")
    for name, implementation in _OPS.items():
        library.impl(name, implementation, dispatch_key)
    _libraries.append(library)


_libraries: list[Any] = []


def _memory_of(tensor: Tensor, group: str, op: str) -> Any:
    from torch._C._distributed_c10d import _SymmetricMemory

    memory = _SymmetricMemory.rendezvous(tensor, group)
    if memory is None:
        raise RuntimeError(
            f"{op}: the input must be symmetric memory, of torch.distributed._symmetric_memory.empty()"
        )
    return memory


def _sum(op: str, tensor: Tensor, reduction: str, group: str, given: Tensor | None = None) -> Tensor:
    """Return the sum over the ranks, added in their order; no rank reads `tensor` any more afterwards."""
    if reduction != "sum":
        raise ValueError(f"{op}: only the reduction 'sum' is supported, got {reduction!r}")
    if not tensor.is_contiguous():
        raise RuntimeError(
            f"{op}: the input must be contiguous, got the strides {tensor.stride()} for {tuple(tensor.shape)}"
        )
    memory = _memory_of(tensor, group, op)
    if given is not None:
        _put(op, given, tensor)
    memory.barrier(channel=0)
    total = _part(memory, 0, tensor).clone()
    for rank in range(1, memory.world_size):
        total += _part(memory, rank, tensor)
    memory.barrier(channel=0)
    return total


def _part(memory: Any, rank: int, like: Tensor) -> Tensor:
    part: Tensor = memory.get_buffer(rank, like.shape, like.dtype, like.storage_offset())
    return part


def _put(op: str, values: Tensor, to: Tensor) -> Tensor:
    if values.shape != to.shape:
        raise RuntimeError(f"{op}: {tuple(values.shape)} does not fit into a tensor of {tuple(to.shape)}")
    return to.copy_(values)


def _one_shot(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    return _sum("one_shot_all_reduce", input, reduce_op, group_name)


def _one_shot_out(input: Tensor, reduce_op: str, group_name: str, out: Tensor) -> Tensor:
    op = "one_shot_all_reduce_out"
    return _put(op, _sum(op, input, reduce_op, group_name), out)


def _one_shot_copy(symm_buffer: Tensor, local_input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    return _sum("one_shot_all_reduce_copy", symm_buffer, reduce_op, group_name, local_input)


def _one_shot_copy_out(
    symm_buffer: Tensor, local_input: Tensor, reduce_op: str, group_name: str, out: Tensor
) -> Tensor:
    op = "one_shot_all_reduce_copy_out"
    return _put(op, _sum(op, symm_buffer, reduce_op, group_name, local_input), out)


def _two_shot(input: Tensor, reduce_op: str, group_name: str) -> Tensor:
    return input.copy_(_sum("two_shot_all_reduce_", input, reduce_op, group_name))


def _two_shot_out(input: Tensor, reduce_op: str, group_name: str, output: Tensor) -> Tensor:
    op = "two_shot_all_reduce_out"
    return _put(op, _sum(op, input, reduce_op, group_name), output)


def _reduce_scatter_out(input: Tensor, group_name: str, split_last_dim: bool, output: Tensor) -> Tensor:
    op = "reduce_scatter_out"
    memory, dim = _memory_of(input, group_name, op), -1 if split_last_dim else 0
    if input.dim() == 0 or input.shape[dim] % memory.world_size != 0:
        raise RuntimeError(
            f"{op}: the ranks must share dimension {dim} evenly, got {tuple(input.shape)} for "
            f"{memory.world_size} ranks"
        )
    total = _sum(op, input, "sum", group_name)
    return _put(op, total.chunk(memory.world_size, dim)[memory.rank], output)


def _memset32(input: Tensor, offset: int, val: int, count: int = 1) -> Tensor:
    if input.dim() != 1 or not input.is_contiguous() or input.dtype != torch.uint32:
        raise RuntimeError(
            "memset32_: input must be a flat, contiguous uint32 tensor, got "
            f"{input.dtype} of shape {tuple(input.shape)}"
        )
    if offset < 0:
        raise RuntimeError(f"memset32_: offset must be greater than or equal to 0 (got {offset})")
    if count <= 0:
        raise RuntimeError(f"memset32_: count must be a positive integer (got {count})")
    if offset + count > input.numel():
        raise RuntimeError(
            f"memset32_: offset + count ({offset} + {count}) exceeded the numel of the input "
            f"({input.numel()})"
        )
    if not 0 <= val < 1 << 32:
        raise RuntimeError(f"memset32_: val must be in the range of 4 bytes (uint32_t), got {val}")
    input[offset : offset + count].fill_(val)
    return input


def _stream_write_value32(input: Tensor, offset: int, val: int) -> Tensor:
    return _memset32(input, offset, val)


_OPS = {
    "one_shot_all_reduce": _one_shot,
    "one_shot_all_reduce_out": _one_shot_out,
    "one_shot_all_reduce_copy": _one_shot_copy,
    "one_shot_all_reduce_copy_out": _one_shot_copy_out,
    "two_shot_all_reduce_": _two_shot,
    "two_shot_all_reduce_out": _two_shot_out,
    "reduce_scatter_out": _reduce_scatter_out,
    "memset32_": _memset32,
    "stream_write_value32_": _stream_write_value32,
}
