"""From what a call gives to the tensors that an executable takes."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.utils import _pytree as pytree

from torch_loom.errors import ImageError
from torch_loom.image.program import decode

CONSTANTS = (bool, int, float, complex, str, type(None))
"""Types of arguments that a model is compiled for by their values."""

_HOST = torch.device("cpu")
MAX_CORES = 1 << 16
"""Of a chip in a plan: a page shows each."""


def same(value: Any, other: Any) -> bool:
    """Whether two constants mean the same to a model: ``1``, ``1.0`` and ``True`` differ."""
    return type(value) is type(other) and repr(value) == repr(other)


def check_specs(path: str | os.PathLike[str], specs: Mapping[str, Any], num_outputs: int) -> None:
    """Raise an ImageError unless an image says which of the leaves its constants are, and what it saves."""
    if not isinstance(specs, dict):
        raise ImageError(f"{path}: the file is damaged: of arguments and results it says {specs!r}")
    saved = specs.get("saved", [])
    if not _are_texts(saved) or len(saved) > num_outputs:
        raise ImageError(f"{path}: the file is damaged: of {num_outputs} results it saves {saved!r}")
    names, keywords = specs.get("names", []), specs.get("keywords", [])
    if not _are_texts(names) or not _are_texts(keywords):
        raise ImageError(f"{path}: the file is damaged: its arguments are {names!r}, by name {keywords!r}")
    constants, given = specs.get("constants"), specs.get("given")
    if constants is None:
        return  # an image from before they were kept
    if (
        not isinstance(constants, list)
        or not isinstance(given, list)
        or not all(isinstance(each, bool) for each in given)
        or given.count(False) != len(constants)
    ):
        raise ImageError(
            f"{path}: the file is damaged: the arguments {given!r} do not fit the constants {constants!r}"
        )
    for constant in constants:
        decode(constant, {}, _HOST)


def _are_texts(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(each, str) for each in value)


def check_plan(path: str | os.PathLike[str], plan: Any) -> None:
    """Raise an ImageError unless a plan has what an executable says of itself, in sizes that can be shown."""
    try:
        sizes = [*plan["grid"], plan["num_chips"]]
        for epoch in plan["epochs"]:
            if [type(epoch["index"]), type(epoch["chip"]), type(epoch["ops"])] != [int, int, list]:
                raise ValueError(f"the epoch {epoch['index']!r} on the chip {epoch['chip']!r}")
        is_shown = len(sizes) == 3 and all(type(size) is int and 0 < size <= MAX_CORES for size in sizes)
        if not is_shown or sizes[0] * sizes[1] > MAX_CORES:
            raise ValueError(f"the grid {plan['grid']!r} on {plan['num_chips']!r} chips")
        if not isinstance(plan["chip"], str):
            raise ValueError(f"the chip {plan['chip']!r}")
        totals = plan["totals"]
        totals.setdefault("interval_seconds", totals["latency_seconds"])  # what the oldest images lack
        for name in ("latency_seconds", "interval_seconds", "samples_per_second", "utilisation"):
            totals[name] = float(totals[name])
        whole = plan.setdefault("end_to_end", {"samples_per_second": totals["samples_per_second"]})
        whole["samples_per_second"] = float(whole["samples_per_second"])
        for name, each in plan["host"].items():
            plan["host"][name] = {key: str(value) for key, value in each.items()}
            if not each.keys() >= {"op", "reason", "source"}:
                raise ValueError(f"{name} on the host")
    except (LookupError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise ImageError(f"{path}: the file is damaged: its plan is malformed ({error})") from error


def names_of(args: Sequence[Any], kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return the leaves of arguments by where they stand."""
    paths = pytree.tree_leaves_with_path((tuple(args), dict(kwargs)))
    return {pytree.keystr(path): leaf for path, leaf in paths}


def _leaves(specs: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]) -> list[Any]:
    given = names_of(args, kwargs)
    names = specs.get("names", ())
    if given.keys() == set(names):
        return [given[name] for name in names]
    keywords = specs.get("keywords", ())
    if names and (others := [name for name in kwargs if name not in keywords]):
        known = f"its keyword arguments are {list(keywords)}" if keywords else "it has no keyword arguments"
        raise ValueError(
            f"{others} are no keywords that it was compiled with: {known}, all else is positional"
        )
    named = {**{name: kwargs[name] for name in keywords if name in kwargs}, **kwargs}
    return pytree.tree_leaves((tuple(args), named))


def tensors_of_call(
    specs: Mapping[str, Any], args: Sequence[Any], kwargs: Mapping[str, Any]
) -> tuple[torch.Tensor, ...]:
    """Return the tensors among the arguments, in the order in which they were compiled.

    Raises:
        ValueError: a constant has another value than at compilation, or is missing; or a keyword is none of
            those that it was compiled with.
    """
    leaves = _leaves(specs, args, kwargs)
    tensors = tuple(leaf for leaf in leaves if isinstance(leaf, torch.Tensor))
    constants = specs.get("constants")
    if constants is None:
        return tensors  # an image from before they were kept
    given = [leaf for leaf in leaves if not isinstance(leaf, torch.Tensor)]
    are_tensors = [isinstance(leaf, torch.Tensor) for leaf in leaves]
    if are_tensors == specs["given"]:
        for number, (leaf, encoded) in enumerate(zip(given, constants, strict=True)):
            value = decode(encoded, {}, _HOST)
            if not same(leaf, value):
                raise ValueError(
                    f"constant {number} of the arguments: it was compiled for {value!r}, but got {leaf!r}. "
                    "Compile it again for this value"
                )
    elif given or (constants and not specs.get("optional", False)):
        wanted = ["a tensor" if spec else None for spec in specs["given"]]
        values = iter(constants)
        words = [each or repr(decode(next(values), {}, _HOST)) for each in wanted]
        got = ["a tensor" if isinstance(leaf, torch.Tensor) else repr(leaf) for leaf in leaves]
        raise ValueError(
            f"it was compiled for the arguments ({', '.join(words)}), but got ({', '.join(got)}). Numbers, "
            "bools, texts and None are constants of what is compiled: give the same, or compile it again"
        )
    return tensors
