"""Whether a test is skipped where there is no GPU, as its source says: decorators, or an `if` and a skip."""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
import textwrap
import tokenize
from collections.abc import Iterable, Sequence
from types import FrameType

_GPU = re.compile(r"cuda|gpu|accelerator|nvidia|device_count", re.IGNORECASE)
# Functions that skip by themselves, as skip_if_no_cuda().
_SKIPS_WITHOUT_GPU = re.compile(r"skip\w*(cuda|gpu|accelerator)", re.IGNORECASE)


def of_decorator(frame: FrameType, names: Sequence[str]) -> bool | None:
    """Return whether the condition of a call names a GPU, itself or by a variable of its module.

    Args:
        frame: that makes the call.
        names: of what is called, as ``skipif``.

    Returns:
        None where the source is not at hand, or has no such call at this line.
    """
    lines = linecache.getlines(frame.f_code.co_filename, frame.f_globals)
    tree, calls = _calls(frame.f_code.co_filename, len(lines))
    here = [
        node
        for node in calls
        if _name(node.func) in names and node.lineno <= frame.f_lineno <= (node.end_lineno or node.lineno)
    ]
    if not here or tree is None:
        return None
    call = min(here, key=lambda node: (node.end_lineno or node.lineno) - node.lineno)
    named = [each.value for each in call.keywords if each.arg == "condition"]
    conditions = [*call.args[:1], *named]
    return _names_gpu(conditions[0], tree) if conditions else None


@functools.lru_cache(maxsize=4)
def _calls(file: str, num_lines: int) -> tuple[ast.Module | None, list[ast.Call]]:
    """Return a file's tree and its calls, kept for its next decorator."""
    tree = _tree("".join(linecache.getlines(file))) if num_lines else None
    return tree, [] if tree is None else [node for node in ast.walk(tree) if isinstance(node, ast.Call)]


@functools.lru_cache(maxsize=10_000)
def of_function(function: object) -> bool:
    """Return whether a function's source skips under an ``if`` that names a GPU; False without a source."""
    source = _source(function)
    tree = None if source is None else _tree(textwrap.dedent(source))
    return tree is not None and any(_skips(node) for node in ast.walk(tree))


def of_module(module: object) -> bool:
    """Return whether a module's own lines, outside of functions, skip under an ``if`` that names a GPU."""
    source = _source(module)
    tree = None if source is None else _tree(source)
    return tree is not None and any(isinstance(line, ast.If) and _skips(line) for line in tree.body)


def _skips(node: ast.AST) -> bool:
    if isinstance(node, ast.If):
        return _GPU.search(ast.unparse(node.test)) is not None and _has_skip([*node.body, *node.orelse])
    return isinstance(node, ast.Call) and _SKIPS_WITHOUT_GPU.search(_name(node.func)) is not None


def _has_skip(lines: Iterable[ast.stmt]) -> bool:
    for node in (each for line in lines for each in ast.walk(line)):
        if isinstance(node, ast.Call) and _name(node.func) in {"skip", "skipTest", "SkipTest"}:
            return True
        if isinstance(node, ast.Raise) and node.exc is not None and _name(node.exc) == "SkipTest":
            return True
    return False


def _names_gpu(condition: ast.expr, tree: ast.Module) -> bool:
    if _GPU.search(ast.unparse(condition)):
        return True
    names = {node.id for node in ast.walk(condition) if isinstance(node, ast.Name)}
    return any(
        isinstance(target, ast.Name) and target.id in names and _GPU.search(ast.unparse(line.value))
        for line in tree.body
        if isinstance(line, ast.Assign)
        for target in line.targets
    )


def _name(function: ast.expr) -> str:
    return getattr(function, "attr", getattr(function, "id", ""))


def _source(of: object) -> str | None:
    try:
        return inspect.getsource(inspect.unwrap(of) if callable(of) else of)  # type: ignore[arg-type]
    except (OSError, TypeError, ValueError, SyntaxError, tokenize.TokenError):
        return None


def _tree(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if text else None
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return None
