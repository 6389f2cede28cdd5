"""Messages between processes of a pipeline: a head in JSON and tensors in host memory, as bytes."""

from __future__ import annotations

import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from torch_loom.errors import PipelineError

PACKET_BYTES = 1024
"""The first packet of every message: its size, and its head where that fits."""
_LENGTHS_BYTES = 16
_ALIGNMENT = 16


@dataclass(frozen=True)
class Message:
    """One message of a run.

    Attributes:
        kind: between ranks ``data``, ``credit``, ``failed``, ``bye``, and ``exit`` ends the connection; to
            the process of a stage what it is to do, and from it ``done`` or ``failed``.
        run: number of the run, counted in the order of the starts; of the question for a stage's process.
        key: which queue it is for.
        value: anything that JSON holds.
        tensors: in host memory; None stays None.
    """

    kind: str
    run: int = 0
    key: str = ""
    value: Any = None
    tensors: Sequence[torch.Tensor | None] = field(default=())


def encode(message: Message) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the first packet, and the body if there is one; both are copies, as bytes.

    Raises:
        PipelineError: a tensor has no dense memory to send.
    """
    parts: list[torch.Tensor] = []
    described: list[Any] = []
    for tensor in message.tensors:
        if tensor is None:
            described.append(None)
            continue
        if tensor.layout is not torch.strided or tensor.is_quantized:
            raise PipelineError(
                f"a tensor of layout {tensor.layout} cannot go to another process: make it dense"
            )
        flat, strides = _flat(tensor.detach().cpu().resolve_conj().resolve_neg())
        described.append([str(tensor.dtype).removeprefix("torch."), list(tensor.shape), strides])
        parts.append(flat.view(torch.uint8))
    head = {"kind": message.kind, "run": message.run, "key": message.key}
    head_bytes = json.dumps({**head, "value": message.value, "tensors": described}).encode()
    first = torch.zeros(PACKET_BYTES, dtype=torch.uint8)
    spill = b"" if len(head_bytes) <= PACKET_BYTES - _LENGTHS_BYTES else head_bytes
    num_body = _aligned(len(spill)) + sum(_aligned(part.numel()) for part in parts)
    first[:_LENGTHS_BYTES].view(torch.int64).copy_(torch.tensor([len(head_bytes), num_body]))
    if not spill:
        first[_LENGTHS_BYTES : _LENGTHS_BYTES + len(head_bytes)] = _from_bytes(head_bytes)
    if not num_body:
        return first, None
    body = torch.empty(num_body, dtype=torch.uint8)
    at = 0
    for part in ([_from_bytes(spill)] if spill else []) + parts:
        body[at : at + part.numel()] = part
        at += _aligned(part.numel())
    return first, body


def num_body_bytes(first: torch.Tensor) -> int:
    """Return how many bytes follow the first packet."""
    return int(first[:_LENGTHS_BYTES].view(torch.int64)[1])


def decode(first: torch.Tensor, body: torch.Tensor | None) -> Message:
    """Return the message of its packets."""
    num_head = int(first[:_LENGTHS_BYTES].view(torch.int64)[0])
    at = 0
    if num_head <= PACKET_BYTES - _LENGTHS_BYTES:
        head_bytes = first[_LENGTHS_BYTES : _LENGTHS_BYTES + num_head]
    else:
        assert body is not None
        head_bytes, at = body[:num_head], _aligned(num_head)
    head = json.loads(bytes(head_bytes.numpy()))
    tensors: list[torch.Tensor | None] = []
    for each in head["tensors"]:
        if each is None:
            tensors.append(None)
            continue
        dtype, shape, strides = getattr(torch, each[0]), each[1], each[2]
        made = (
            torch.empty(shape, dtype=dtype)
            if strides is None
            else torch.empty_strided(shape, strides, dtype=dtype)
        )
        num_bytes = made.numel() * made.element_size()
        if num_bytes:
            assert body is not None
            # Copies: tensors that shared one buffer would share autograd's version counter.
            made.as_strided((made.numel(),), (1,)).view(torch.uint8).copy_(body[at : at + num_bytes])
        at += _aligned(num_bytes)
        tensors.append(made)
    return Message(head["kind"], head["run"], head["key"], head["value"], tuple(tensors))


def _flat(tensor: torch.Tensor) -> tuple[torch.Tensor, list[int] | None]:
    """Return the values in the order of their memory, and the strides where it is not that of the shape."""
    if not tensor.is_contiguous():
        order = sorted(range(tensor.dim()), key=tensor.stride, reverse=True)
        if (in_memory := tensor.permute(order)).is_contiguous():
            return in_memory.reshape(-1), list(tensor.stride())
    return tensor.contiguous().reshape(-1), None


def _aligned(num_bytes: int) -> int:
    return -(-num_bytes // _ALIGNMENT) * _ALIGNMENT


def _from_bytes(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)
