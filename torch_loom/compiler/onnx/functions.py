"""Operators that ONNX defines by others: their definition takes the node's place."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from torch_loom.errors import OnnxError

if TYPE_CHECKING:
    from torch_loom.compiler.onnx.convert import Converter


def expanded(
    converter: Converter,
    node: Any,
    domain: str,
    version: int,
    given: Sequence[Any],
    attributes: dict[str, Any],
) -> Sequence[Any]:
    raise OnnxError("it is not read")
