"""What a planted race is, and what the planted ones share."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

DEVICE = "loom"


@dataclass(frozen=True)
class Race:
    """A planted race.

    Attributes:
        body: the program; its argument says whether it is the repaired twin.
        what: what is wrong, in a line.
        error: the class of the report.
    """

    body: Callable[[bool], None]
    what: str
    error: str

    @property
    def name(self) -> str:
        return self.body.__name__


RACES: list[Race] = []


def race(
    what: str, error: str = "UnsynchronizedAccessError"
) -> Callable[[Callable[[bool], None]], Callable[[bool], None]]:
    def add(body: Callable[[bool], None]) -> Callable[[bool], None]:
        RACES.append(Race(body, what, error))
        return body

    return add


def default(device: int = 0) -> torch.Stream:
    return torch.loom.default_stream(device)


def side(device: int = 0) -> torch.Stream:
    return torch.loom.Stream(device=f"{DEVICE}:{device}")


def on(stream: torch.Stream) -> torch.loom.StreamContext:
    return torch.loom.stream(stream)


def ones(*sizes: int, device: str = DEVICE) -> torch.Tensor:
    return torch.ones(sizes or (4096,), device=device)
