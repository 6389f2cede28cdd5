"""What each rank answers for its stages, put together on every rank."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from torch_loom.pipeline.ranks.run import RankedRun
from torch_loom.pipeline.report import Span
from torch_loom.pipeline.stage import Stage


def share_answers(ranked: RankedRun, mine: Mapping[int, Any]) -> dict[int, Any]:
    """Return the answer of every stage by its place: None, or tensors by name.

    Raises:
        StageError: the pipeline failed.
        PipelineStoppedError: another rank has shut it down.
    """
    names = {place: None if each is None else list(each) for place, each in mine.items()}
    tensors = [value for each in mine.values() for value in (each or {}).values()]
    found: dict[int, Any] = {}
    for message in ranked.exchange(list(names.items()), tensors).values():
        values = iter(message.tensors)
        for place, known in message.value:
            found[place] = None if known is None else {name: next(values) for name in known}
    return found


def share_spans(ranked: RankedRun, stages: Sequence[Stage]) -> None:
    """Give each rank what the stages of the others did when, so that its report shows all.

    Clocks of two machines have nothing in common: times are counted back from this exchange.
    """
    now = time.perf_counter_ns()
    mine = {
        place: [(span.kind, span.microbatch, span.begin_ns - now, span.end_ns - now) for span in stage.spans]
        for place, stage in enumerate(stages)
        if stage.rank is None
    }
    for rank, message in ranked.exchange(list(mine.items())).items():
        if rank == ranked.rank:
            continue
        for place, spans in message.value:
            stages[place].spans.clear()
            stages[place].spans.extend(Span(k, n, begin + now, end + now) for k, n, begin, end in spans)
