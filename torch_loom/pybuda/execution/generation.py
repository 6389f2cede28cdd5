"""Generation with caches: where a step writes."""

from __future__ import annotations

from torch_loom.errors import PyBudaError
from torch_loom.pipeline import Command, CommandType, Pipeline
from torch_loom.pybuda.tensor import TILE
from torch_loom.pybuda.wanted import check_count


def position(where: str, write_index: int, tokens_per_iter: int, token_id: int) -> tuple[int, int]:
    """Return the token at which a step writes, and how many tokens it has; -1 is a value that is not given.

    Args:
        write_index: in tiles of 32 tokens. A ``token_id`` beside it, counted from the first token, is one of
            that tile.
        tokens_per_iter: 1 if it is not given.

    Raises:
        PyBudaError: neither ``write_index`` nor both of the others; a ``token_id`` of another tile; a value
            that is no whole number of -1 or more.
    """
    given = {"write_index": write_index, "tokens_per_iter": tokens_per_iter, "token_id": token_id}
    for name, value in given.items():
        check_count(where, name, value, -1)
    words = ", ".join(f"{name} is {value}" for name, value in given.items())
    if write_index < 0 and (tokens_per_iter < 1 or token_id < 0):
        raise PyBudaError(
            f"{where}: {words}; it needs write_index of 0 or more, or tokens_per_iter of 1 or more and "
            "token_id of 0 or more"
        )
    if write_index >= 0 and token_id >= 0 and token_id // TILE != write_index:
        raise PyBudaError(
            f"{where}: {words}; token {token_id} is in tile {token_id // TILE}: "
            "give that write_index, or none"
        )
    return token_id if token_id >= 0 else write_index * TILE, max(tokens_per_iter, 1)


def set_position(pipeline: Pipeline, place: int, start: int, num_tokens: int) -> None:
    """Set the token at which the next forward of a stage's modules begins, in the order of its commands.

    Calls ``set_position(start, num_tokens)`` of modules that have it; others keep their own count.
    """
    stage = pipeline.stages[place]

    def tell() -> None:
        stage.call_modules("set_position", start, num_tokens)

    worker = pipeline.worker(place)
    if worker is not None:
        worker.commands.put(Command(CommandType.CALL, parameters=tell))
