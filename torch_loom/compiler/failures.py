"""What a model's own failures become while it is traced: one sentence, with the line of the program."""

from __future__ import annotations

import contextlib
import logging
import re
import sys
import sysconfig
import traceback
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from torch import fx

from torch_loom.compiler.ir import op_name, shape_class, source_of, tensors_of, value_of
from torch_loom.errors import ExportError

IN_MODEL = "\nin the model: "
"""Stands between a model's own error and the line that raised it."""
# Errors of Python and PyTorch that are made of one text.
_PLAIN = (RuntimeError, ValueError, TypeError, IndexError, NotImplementedError)
_UNKNOWN_RESULT = re.compile(r"Found <class '(.*?)'> in output, which is not a known type")
# What is logged of an error that is raised anyway.
_REPEATED = ("failed while attempting to run meta for", "Unable to find user code corresponding to")
_LOGGERS = ("torch._subclasses.fake_tensor", "torch.fx.experimental.symbolic_shapes")


@contextlib.contextmanager
def named_lines() -> Iterator[None]:
    """Turn what a tracer refuses into one sentence, and add the line to the model's own errors."""
    from torch._dynamo.exc import TorchDynamoException
    from torch.fx.experimental.symbolic_shapes import GuardOnDataDependentSymNode

    try:
        with contextlib.redirect_stderr(_WithoutGraphs(sys.stderr)), without_noise():
            yield
    except GuardOnDataDependentSymNode as error:
        raise ExportError(
            f"{line_of(error) or 'the model'}: this depends on the values of tensors, which are known when "
            "it runs only. Compute with both branches and torch.where, take the branch as an option of the "
            'model, or use torch.compile(backend="loom"), which compiles what stands between such lines'
        ) from error
    except TorchDynamoException as error:
        first = str(error).strip().partition("\n")[0]
        raise ExportError(
            f"{line_of(error) or 'the model'}: it cannot be made a graph of ops: {first}"
        ) from error
    except _PLAIN as error:
        if (unknown := _UNKNOWN_RESULT.match(str(error))) is not None:
            raise ExportError(
                f"the model returns an instance of {unknown[1]}: it returns tensors, in tuples, lists, "
                "dictionaries or classes that PyTorch knows (torch.export.register_dataclass)"
            ) from error
        line = line_of(error)
        if line is None or type(error) not in _PLAIN:
            raise
        told = type(error)(f"{error}{IN_MODEL}{line}")
        # The model's frames stay in the traceback.
        raise told.with_traceback(error.__traceback__) from error.__cause__


@contextlib.contextmanager
def without_noise() -> Iterator[None]:
    """Hide what tracers say of their own means, and logs of errors that are raised."""
    loggers = [logging.getLogger(name) for name in _LOGGERS]
    for logger in loggers:
        logger.addFilter(_is_news)
    try:
        with warnings.catch_warnings():
            # A recurrent layer's list of its own parameters; other attributes are the program's.
            weights = r"(self\.[\w.]*_flat_weights\[\d+\](, )?)+"
            warnings.filterwarnings(
                "ignore", rf"The tensor attributes? {weights} (was|were) assigned during export"
            )
            warnings.filterwarnings("ignore", r"`isinstance\(treespec, LeafSpec\)`", FutureWarning)
            yield
    finally:
        for logger in loggers:
            logger.removeFilter(_is_news)


def _is_news(record: logging.LogRecord) -> bool:
    return not str(record.msg).startswith(_REPEATED)


class _WithoutGraphs:
    """Standard error without the graphs that the exporter prints there before it raises."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream
        self._is_dropping = False

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        is_graph = text.lstrip().startswith(("class GraphModule(", "def forward(self"))
        # The ends of its lines are written apart.
        self._is_dropping = is_graph or (self._is_dropping and not text.strip())
        if self._is_dropping:
            return len(text)
        return int(self._stream.write(text))


_NOT_THE_MODEL = (Path(torch.__file__).parent, Path(__file__).parents[1])


def line_of(error: BaseException) -> str | None:
    """Return the line of the program in which an error was raised: ``"net.py:12, in forward, `if x > 0:`"``.

    Lines of Python's own library, of PyTorch and of this package are passed over; None if all are.
    """
    library = Path(sysconfig.get_path("stdlib"))
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        path = Path(frame.filename)
        is_installed = "site-packages" in path.parts
        if not path.is_file() or any(path.is_relative_to(each) for each in _NOT_THE_MODEL):
            continue
        if is_installed or not path.is_relative_to(library):
            return f"{frame.filename}:{frame.lineno}, in {frame.name}, `{frame.line}`"
    return None


# Operands and results of what is tried.
_MOST_BYTES = 16 * 2**20
_MIXED = ("matmul", "convolution", "attention", "recurrent", "normalisation")


def check_dtypes(graph: fx.GraphModule) -> None:
    """Raise what eager mode raises for operands of dtypes that do not fit, which shape functions let pass.

    A product of tensors of several dtypes is tried on zeros of the host.
    """
    for node in graph.graph.nodes:
        if not isinstance(node.target, torch._ops.OpOverload) or shape_class(node) not in _MIXED:
            continue
        dtypes = {tensor.dtype for each in node.all_input_nodes for tensor in tensors_of(value_of(each))}
        if len(dtypes - {torch.bool}) < 2 or _bytes_of(node) > _MOST_BYTES:
            continue
        try:
            args = fx.node.map_arg(node.args, _zeros)
            kwargs = fx.node.map_arg(node.kwargs, _zeros)
            # A dropout would draw from the program's random numbers.
            with torch.no_grad(), torch.random.fork_rng(devices=()):
                node.target(*args, **kwargs)
        except RuntimeError as error:
            if "type" not in str(error):
                continue  # not about what is asked here
            where = source_of(node) or f"the op {op_name(node)}"
            raise RuntimeError(f"{error}{IN_MODEL}{where}") from error


def _bytes_of(node: fx.Node) -> int:
    values = [value_of(each) for each in (node, *node.all_input_nodes)]
    return sum(tensor.nbytes for value in values for tensor in tensors_of(value))


def _zeros(node: fx.Node) -> Any:
    value = value_of(node)
    if isinstance(value, torch.Tensor):
        return torch.zeros([int(size) for size in value.shape], dtype=value.dtype)
    return value
