"""Which cases there are, and the samples of each, the same on every run."""

from __future__ import annotations

import functools
import random
from collections.abc import Iterable, Iterator
from typing import Any, TypeAlias

import numpy as np
import torch
from torch.testing._internal import common_methods_invocations as database

from .model import NO_DTYPE, Case

OpInfo: TypeAlias = Any
Sample: TypeAlias = Any

SEED = 1234


@functools.cache
def ops(family: str) -> dict[str, OpInfo]:
    """Returns the family's OpInfos by full name, variant included, in the database's order."""
    if family == "ops":
        infos = database.op_db
    else:
        infos = [
            *database.foreach_unary_op_db,
            *database.foreach_binary_op_db,
            *database.foreach_pointwise_op_db,
            *database.foreach_reduce_op_db,
            *database.foreach_other_op_db,
        ]
    named = {info.full_name: info for info in infos}
    assert len(named) == len(infos), "two OpInfos share a name"
    return named


def dtypes_of(info: OpInfo, on_cuda: bool = False) -> list[str]:
    """Returns the dtypes that the database lists for the op on CPU, and on CUDA if asked, sorted by name."""
    listed = set(info.supported_dtypes("cpu"))
    if on_cuda:
        listed &= set(info.supported_dtypes("cuda"))
    return sorted(short_name(dtype) for dtype in listed)


def short_name(dtype: torch.dtype) -> str:
    return str(dtype).removeprefix("torch.")


def enumerate_cases(families: Iterable[str], on_cuda: bool = False) -> list[Case]:
    """Returns every case: each op with each of its dtypes, and with its error inputs."""
    found = []
    for family in families:
        for name, info in ops(family).items():
            found += [Case(family, name, dtype) for dtype in dtypes_of(info, on_cuda)]
            if info.error_inputs_func is not None:
                found.append(Case(family, name, NO_DTYPE))
    return found


def seed_host(seed: int = SEED) -> None:
    """Seeds the three generators that the database's sample functions draw from.

    Not by `torch.manual_seed`: that formats a stack trace for each kind of device there could be, which would
    be two thirds of the whole run.
    """
    torch.default_generator.manual_seed(seed)
    random.seed(seed)
    np.random.seed(seed % 2**32)


def samples(info: OpInfo, dtype: str, *, requires_grad: bool = False) -> Iterator[Sample]:
    """Yields the op's samples on CPU. Seeding before each makes them independent of what runs in between."""
    # Not by `info.sample_inputs`, which walks the stack for a unit test around it: milliseconds a call.
    return _seeded(iter(info.sample_inputs_func(info, "cpu", getattr(torch, dtype), requires_grad)))


def error_samples(info: OpInfo) -> Iterator[Sample]:
    """Yields the op's inputs that must be rejected; `.sample_input` holds the arguments."""
    return _seeded(iter(info.error_inputs_func(info, "cpu")))


def _seeded(made: Iterator[Sample]) -> Iterator[Sample]:
    while True:
        seed_host()
        try:
            sample = next(made)
        except StopIteration:
            return
        yield sample
