"""A model's graphs as Python."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import torch
from torch import nn

from torch_loom.compat.tt.backend import tt_backend


def codegen_py(
    model: nn.Module,
    *args: Any,
    compiler_options: Mapping[str, Any] = {},
    export_path: str | os.PathLike[str] = "codegen_result",
    **kwargs: Any,
) -> None:
    """Compile a model for these inputs and write each of its graphs into a folder, as Python and as JSON.

    Nothing is run, and the model stays as it is.

    Raises:
        CompilerOptionError: an option that does not exist, is declined, or has a bad value.
    """
    options = {**compiler_options, "export_path": export_path, "dry_run": True}

    def backend(graph: Any, inputs: Any) -> Any:
        return tt_backend(graph, inputs, options=options)

    with torch.no_grad():
        torch.compile(model, backend=backend, dynamic=False)(*args, **kwargs)
