"""A model's graphs as Python."""

from __future__ import annotations

import itertools
import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torch_loom.compat.tt.backend import tt_backend
from torch_loom.errors import CompilerOptionError


def codegen_py(
    model: nn.Module,
    *args: Any,
    compiler_options: Mapping[str, Any] = {},
    export_path: str | os.PathLike[str] = "codegen_result",
    **kwargs: Any,
) -> None:
    """Compile a model for these inputs and write its graphs, as Python and JSON: ``graph_0``, ``graph_1``, …

    Each is a folder of ``export_path``.

    Nothing is run, and the model stays as it is.

    Raises:
        CompilerOptionError: an option that does not exist, is declined, or has a bad value.
    """
    if not isinstance(export_path, str | os.PathLike):
        raise CompilerOptionError(f"export_path={export_path!r}: it takes the path of a folder")
    numbers = itertools.count()

    def backend(graph: Any, inputs: Any) -> Any:
        folder = os.path.join(export_path, f"graph_{next(numbers)}")
        return tt_backend(graph, inputs, options={**compiler_options, "export_path": folder, "dry_run": True})

    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(*args, **kwargs)
