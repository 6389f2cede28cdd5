"""What ``options={"mode": ["compile_only"]}`` leaves: a program on disk, and results without values."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import fx

from torch_loom.chips import Chip
from torch_loom.compiler.calls import call_of, name_of
from torch_loom.compiler.ir import op_name
from torch_loom.config.files import whole_file
from torch_loom.errors import CompilerOptionError
from torch_loom.image.program import encode

SUFFIX = ".rbln"
_FORMAT = "torch-loom program, version 1"


COMPILE_ONLY = "compile_only"
"""The mode of torch-rbln that builds and does not run."""


def is_asked_for(mode: Any) -> bool:
    """Return whether the option ``mode`` asks for a build without a run: text, or a list of texts."""
    return mode == COMPILE_ONLY or (isinstance(mode, (list, tuple)) and COMPILE_ONLY in mode)


def write(
    graph: fx.GraphModule, chip: Chip, folder: str | os.PathLike[str], option: str = "cache_dir"
) -> Path:
    """Write a graph's ops, inputs and results as JSON into a folder, which is made; return the file.

    Its name is its contents', so that the same graph is one file, whichever process writes it.

    Args:
        option: the name of the option that gave the folder, for error messages.

    Raises:
        CompilerOptionError: the folder cannot be written.
    """
    text = json.dumps(_described(graph, chip), indent=1, sort_keys=True)
    path = Path(folder) / f"{hashlib.sha256(text.encode()).hexdigest()[:32]}{SUFFIX}"
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with whole_file(path) as unfinished:  # another process may look for it
            unfinished.write_text(text, encoding="utf-8")
    except (OSError, ValueError) as error:
        raise CompilerOptionError(f"{option}={os.fspath(folder)!r} cannot be written: {error}") from error
    return path


def _described(graph: fx.GraphModule, chip: Chip) -> Mapping[str, Any]:
    nodes = list(graph.graph.nodes)
    return {
        "format": _FORMAT,
        "chip": chip.name,
        "inputs": [_value(node) for node in nodes if node.op == "placeholder"],
        "calls": [_call(node) for node in nodes if node.op == "call_function"],
        "outputs": [name_of(result) for result in _results(graph)],
    }


def _value(node: fx.Node) -> Mapping[str, Any]:
    value = node.meta.get("val", node.meta.get("example_value"))
    if not isinstance(value, torch.Tensor):
        return {"name": node.name, "value": str(value)}
    return {"name": node.name, "shape": [str(size) for size in value.shape], "dtype": str(value.dtype)}


def _call(node: fx.Node) -> Mapping[str, Any]:
    try:
        call = call_of(node)
    except Exception:
        # What an image cannot hold, such as control flow, is reported by its name.
        args = [encode(argument, name_of) for argument in node.args if isinstance(argument, fx.Node)]
        return {"name": node.name, "op": op_name(node), "args": args}
    return {"name": call.name, "op": call.op, "args": call.args, "kwargs": call.kwargs}


def _results(graph: fx.GraphModule) -> Sequence[Any]:
    (output,) = graph.graph.find_nodes(op="output")
    found: Sequence[Any] = output.args[0]
    return found


def unset_results(graph: fx.GraphModule) -> Callable[..., list[Any]]:
    """Return a function that takes a graph's inputs and returns memory in the shapes of its results."""
    wanted = [result.meta.get("val") if isinstance(result, fx.Node) else result for result in _results(graph)]

    def results(*inputs: Any) -> list[Any]:
        return [_unset(each) for each in wanted]

    return results


def _unset(value: Any) -> Any:
    if not isinstance(value, torch.Tensor):
        return value
    sizes, strides = (tuple(int(each) for each in many) for many in (value.shape, value.stride()))
    return torch.empty_strided(sizes, strides, dtype=value.dtype, device=value.device)
