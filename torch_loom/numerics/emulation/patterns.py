"""Patterns of overrides: what they fit, and telling the user of one that fits nothing."""

from __future__ import annotations

import difflib
import warnings
from collections.abc import Iterable, Sequence

import torch
from torch.nn import functional

from torch_loom.errors import FormatError
from torch_loom.numerics.emulation.rules import PASSES


def matches(pattern: str, text: str) -> bool:
    """Whether `text` is of the pattern, in which ``*`` stands for any text and ``?`` for one character.

    Plain string operations, which torch.compile can trace, unlike fnmatch's expressions.
    """
    place, start, star, resume = 0, 0, -1, 0
    while place < len(text):
        if (
            start < len(pattern)
            and (pattern[start] == "?" or pattern[start] == text[place])
            and pattern[start] != "*"
        ):
            place, start = place + 1, start + 1
        elif start < len(pattern) and pattern[start] == "*":
            star, resume = start, place
            start = start + 1
        elif star >= 0:
            resume = resume + 1
            place, start = resume, star + 1
        else:
            return False
    while start < len(pattern) and pattern[start] == "*":
        start = start + 1
    return start == len(pattern)


def is_within(pattern: str, path: str) -> bool:
    """Whether the module at `path`, or one around it, is of the pattern; around all is the root, ``""``."""
    while path:
        if matches(pattern, path):
            return True
        path = path.rpartition(".")[0]
    return bool(pattern) and matches(pattern, "")


# How PyTorch names the functions of these modules: torch.linalg.norm is linalg_norm.
_PREFIXES = ("linalg_", "special_", "fft_")


def function_name(name: str) -> str:
    """The name that the rules and the user's patterns know a function of PyTorch by."""
    for prefix in _PREFIXES:
        if name.startswith(prefix):
            return name[len(prefix) :]
    return name


# Not those that leave values as they are, which no override changes.
_FUNCTIONS = tuple(
    {
        function_name(name.strip("_"))
        for owner in (torch, functional, torch.Tensor, torch.linalg, torch.special, torch.fft)
        for name in dir(owner)
        if name not in PASSES and callable(getattr(owner, name, None))
    }
)


def _fits_function(pattern: str) -> bool:
    return any(matches(pattern, name) for name in _FUNCTIONS)


def means_modules(pattern: str) -> bool:
    """Whether a pattern of overrides means modules by their paths, and not functions alone."""
    where, colon, _ = pattern.partition(":")
    if colon:
        return bool(where)
    return not _fits_function(pattern)


# What torch.compiler.assume_constant_result sets: the names are too many to trace.
means_modules._dynamo_marked_constant = True  # type: ignore[attr-defined]


def _complaint(pattern: str, paths: Sequence[str]) -> str | None:
    """What is wrong with a pattern where a model has modules at these paths; None: it fits something."""
    where, colon, name = pattern.partition(":")
    if colon:
        if not any(is_within(where, path) for path in paths):
            return f"fits no module{_near(where, paths)}"
        if name and not _fits_function(name):
            return f"fits no function{_near(name, _FUNCTIONS)}"
        return None
    if _fits_function(pattern) or any(is_within(pattern, path) for path in paths):
        return None
    return f"fits no module and no function{_near(pattern, (*paths, *_FUNCTIONS))}"


def _near(text: str, names: Iterable[str]) -> str:
    known = [name for name in dict.fromkeys(names) if name]
    # A path is often given without its beginning.
    ends = [name for name in known if name.endswith(f".{text}")]
    near = [*ends, *difflib.get_close_matches(text, known, 5, 0.6)]
    return f"; near it: {', '.join(list(dict.fromkeys(near))[:5])}" if near else ""


_GRAMMAR = (
    "a key is a module's path ('encoder.0', 'encoder.*'), a function's name ('softmax'), or both "
    "('encoder.*:softmax')"
)


def check_known(patterns: Iterable[str], paths: Sequence[str]) -> None:
    """Refuse patterns that fit no module of a model and no function of PyTorch.

    Args:
        patterns: keys of ``overrides``.
        paths: those of all modules of the model.
    """
    for pattern in patterns:
        complaint = _complaint(pattern, paths)
        if complaint is not None:
            raise FormatError(f"emulate: overrides[{pattern!r}] {complaint}; {_GRAMMAR}")


def warn_unknown(patterns: Iterable[str], paths: Sequence[str]) -> None:
    """Warn of patterns that fitted no module that was called in a context, and no function of PyTorch."""
    for pattern in patterns:
        complaint = _complaint(pattern, paths)
        if complaint is not None:
            warnings.warn(
                f"emulate: overrides[{pattern!r}] {complaint}, in the {len(paths)} modules that the context "
                f"ran; {_GRAMMAR}",
                stacklevel=3,
            )
