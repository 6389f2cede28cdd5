"""Collectives of tensors under CUDA's name, over a process group that reaches the CPU's memory only.

Gloo is built without CUDA in a CPU build of PyTorch, and is asked for CUDA tensors all the same: it would
read their addresses as its own kernels do, and crash. So each collective runs on copies on the host.
"""

from __future__ import annotations

import functools
import importlib
import threading
import warnings
from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_loom import config

_OPS = (
    "allgather_",
    "_allgather_base_",
    "allgather_coalesced_",
    "allgather_into_tensor_coalesced_",
    "allreduce_",
    "allreduce_coalesced_",
    "alltoall_",
    "alltoall_base_",
    "barrier",
    "broadcast_",
    "gather_",
    "recv_",
    "recv_any_source_",
    "reduce_",
    "_reduce_scatter_base_",
    "reduce_scatter_",
    "reduce_scatter_tensor_coalesced_",
    "scatter_",
    "send",
)

# Between two ranks: a program may start several before it waits for one, and each wait of gloo's takes one
# message, so that a second wait would not end.
_PAIRED = frozenset({"recv_", "recv_any_source_", "send"})

# Kept: the registrations go with it.
_library: Any = None
# Messages of the batch that a thread has begun, if any.
_batch = threading.local()


def provide() -> None:
    """Register them, if this build has collectives."""
    global _library
    if not torch.distributed.is_available():
        return
    make: Any = torch.library.Library
    _library = make("c10d", "IMPL")
    with warnings.catch_warnings():
        # PyTorch says that a kernel of its own is replaced.
        warnings.simplefilter("ignore")
        for name in _OPS:
            op = getattr(torch.ops.c10d, name)
            stage = _when_waited_for if name in _PAIRED else _through_the_host
            _library.impl(name, stage(op.default), "CUDA")
        # PyTorch has this op for sparse tensors, too.
        _library.impl("allreduce_", _through_the_host(torch.ops.c10d.allreduce_.default), "SparseCUDA")


def begin_batch() -> None:
    """Collect the messages of this thread from here on."""
    _batch.messages = []


def end_batch() -> Any:
    """Return the work of the messages since :func:`begin_batch`: waiting for it waits for each."""
    messages, _batch.messages = _batch.messages, None

    class Batch(_distributed().Work):  # type: ignore[misc]
        """Messages that are waited for together. Collectives have ended before they return."""

        def wait(self, *timeout: Any) -> bool:
            """Wait for each."""
            return all(one.wait(*timeout) for one in messages)

        def is_completed(self) -> bool:
            """Return whether all have arrived."""
            return all(one.is_completed() for one in messages)

    return Batch()


def _through_the_host(op: Any) -> Callable[..., Any]:
    adapted = _AS_NCCL.get(op.name().removeprefix("c10d::"))
    run = op if adapted is None else functools.partial(adapted, op)

    def collective(*arguments: Any) -> Any:
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        with _as_a_kernel():
            result = run(*(_on_host(argument, copies) for argument in arguments))
            work = result[-1] if isinstance(result, (tuple, list)) else result
            work.wait()
            for original, copy in copies.values():
                original.copy_(copy)
        if isinstance(result, (tuple, list)):
            return (*(_on_device(part, copies) for part in result[:-1]), work)
        return result

    return collective


def _gather_sizes(op: Any, outputs: Any, inputs: Sequence[Any], group: Any, *rest: Any) -> Any:
    """Gather tensors whose sizes differ from rank to rank, which gloo refuses: one broadcast each."""
    if len(inputs) != 1 or all(one.shape == inputs[0].shape for one in outputs[0]):
        return op(outputs, inputs, group, *rest)
    own = _group(group).rank()
    if len(outputs[0]) != _group(group).size() or outputs[0][own].shape != inputs[0].shape:
        return op(outputs, inputs, group, *rest)  # which says what is wrong
    outputs[0][own].copy_(inputs[0])
    for rank, output in enumerate(outputs[0]):
        _, work = torch.ops.c10d.broadcast_.default([output], group, rank, 0, *rest)
        work.wait()
    return outputs, work


def _gather_flat(op: Any, output: Any, tensor: Any, group: Any, *rest: Any) -> Any:
    """The number of elements counts, so that results are concatenated or stacked."""
    _check_parts("all_gather_into_tensor", "output", output, "input", tensor, group)
    return op(_flat(output), _flat(tensor), group, *rest)


def _scatter_flat(op: Any, output: Any, tensor: Any, group: Any, *rest: Any) -> Any:
    _check_parts("reduce_scatter_tensor", "input", tensor, "output", output, group)
    return op(_flat(output), _flat(tensor), group, *rest)


def _exchange(op: Any, output: Any, tensor: Any, group: Any, to: Any, of: Any, *rest: Any) -> Any:
    for name, one, sizes in (("output", output, to), ("input", tensor, of)):
        if not sizes and one.size(0) % _group(group).size():
            raise RuntimeError(
                f"Tensor's dim 0 does not divide equally across group size: {name} of shape "
                f"{tuple(one.shape)}, {_group(group).size()} ranks. Give {name}_split_sizes"
            )
    return op(output, tensor, group, to, of, *rest)


def _check_parts(
    name: str, whole_name: str, whole: torch.Tensor, part_name: str, part: torch.Tensor, group: Any
) -> None:
    size = _group(group).size()
    if whole.numel() != size * part.numel():
        raise ValueError(
            f"{name}: {whole_name} tensor size must be equal to world_size times {part_name} tensor size, "
            f"but {whole_name} has shape {tuple(whole.shape)}, {part_name} {tuple(part.shape)}, and "
            f"world_size is {size}"
        )


def _flat(tensor: torch.Tensor) -> torch.Tensor:
    return tensor.view(-1) if tensor.is_contiguous() else tensor


def _group(boxed: Any) -> Any:
    return _distributed().ProcessGroup.unbox(boxed)


# What NCCL takes or refuses and gloo does not.
_AS_NCCL: dict[str, Callable[..., Any]] = {
    "allgather_": _gather_sizes,
    "_allgather_base_": _gather_flat,
    "_reduce_scatter_base_": _scatter_flat,
    "alltoall_base_": _exchange,
}


def _when_waited_for(op: Any) -> Callable[..., Any]:
    work_type = _distributed().Work
    # Keeps each message until it is waited for, so that the caller gets this Python object.
    pending: set[Any] = set()

    class Message(work_type):  # type: ignore[misc, valid-type]
        """A message under way; wait() copies what has arrived to the device."""

        def __init__(self, work: Any, copies: list[tuple[torch.Tensor, torch.Tensor]]) -> None:
            super().__init__()
            self._work = work
            self._copies = copies
            self._has_ended = False
            self._failure: Exception | None = None
            self._lock = threading.Lock()
            pending.add(self)

        def wait(self, *timeout: Any) -> bool:
            """Wait for it, at most as long as `timeout`; raise what made it fail, each time."""
            with self._lock:  # a second waiter finds the copies made
                if not self._has_ended:
                    pending.discard(self)
                    try:
                        self._work.wait(*timeout)
                        with _as_a_kernel():
                            for original, copy in self._copies:
                                original.copy_(copy)
                    except Exception as error:
                        self._failure = error
                    self._has_ended = True
                if self._failure is not None:
                    raise self._failure
            return True

        def is_completed(self) -> bool:
            """Return whether it has arrived."""
            return self._has_ended or bool(self._work.is_completed())

        def _source_rank(self) -> int:
            return int(self._work._source_rank())

    def message(*arguments: Any) -> Any:
        copies: dict[int, tuple[torch.Tensor, torch.Tensor]] = {}
        work = op(*(_on_host(argument, copies) for argument in arguments))
        # The program need not wait for what it sent.
        pending.difference_update([one for one in list(pending) if not one._copies and one.is_completed()])
        is_sent = op is torch.ops.c10d.send.default
        work = work if isinstance(work, work_type) else work_type.unbox(work)
        sent = Message(work, [] if is_sent else list(copies.values()))
        if getattr(_batch, "messages", None) is not None:
            _batch.messages.append(sent)
        return sent.boxed()

    return message


def _as_a_kernel() -> Any:
    # NCCL writes any memory: also that of parameters, of parts of a split, and of inference tensors, which
    # autograd refuses to have written in place.
    return torch._C._AutoDispatchBelowADInplaceOrView()


def _distributed() -> Any:
    return importlib.import_module("torch._C._distributed_c10d")


def _on_host(value: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_on_host(part, copies) for part in value]
    if not isinstance(value, torch.Tensor) or value.device.type != config.CUDA_NAME:
        return value
    copies.setdefault(id(value), (value, value.cpu()))
    return copies[id(value)][1]


def _on_device(value: Any, copies: dict[int, tuple[torch.Tensor, torch.Tensor]]) -> Any:
    if isinstance(value, (list, tuple)):
        return [_on_device(part, copies) for part in value]
    if not isinstance(value, torch.Tensor):
        return value
    if value.is_sparse:
        return value.to(config.CUDA_NAME)
    for original, copy in copies.values():
        if not copy.is_sparse and copy.data_ptr() == value.data_ptr() and copy.numel() == value.numel():
            return original
    return value.to(config.CUDA_NAME)
