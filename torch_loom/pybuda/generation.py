"""Generation with caches: where a step writes."""

from __future__ import annotations

from torch_loom.pipeline import Command, CommandType, Pipeline

__all__ = ["set_position"]


def set_position(pipeline: Pipeline, place: int, start: int, num_tokens: int) -> None:
    """Tell the modules of a stage at which token the next forward begins, after what it was told before.

    A module with a method ``set_position(start, num_tokens)`` is told; others keep their own count.
    """
    stage = pipeline.stages[place]

    def tell() -> None:
        stage.call_modules("set_position", start, num_tokens)

    worker = pipeline.worker(place)
    if worker is not None:
        worker.commands.put(Command(CommandType.CALL, parameters=tell))
