"""Generation with caches: where a step writes."""

from __future__ import annotations

from torch_loom.pipeline import Command, CommandType, Pipeline


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
