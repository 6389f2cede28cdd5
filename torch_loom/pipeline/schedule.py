"""In which order a stage does the forwards and backwards of its micro-batches."""

from __future__ import annotations

from typing import Literal

from torch_loom.errors import PipelineError

ScheduleName = Literal["all_forward", "1f1b"]
Step = tuple[Literal["F", "B"], int]


def schedule(name: ScheduleName, stage: int, num_stages: int, num_microbatches: int) -> list[Step]:
    """Return the steps of one stage: ``("F", micro-batch)`` and ``("B", micro-batch)``.

    ``all_forward`` does all forwards before the backwards, as PyBuda documents. ``1f1b`` keeps at most
    ``num_stages - stage`` forwards alive. Backwards come in the order of the micro-batches in both, so
    gradients are summed in the same order and have the same bits.

    Raises:
        PipelineError: another name.
    """
    forwards: list[Step] = [("F", number) for number in range(num_microbatches)]
    backwards: list[Step] = [("B", number) for number in range(num_microbatches)]
    if name == "all_forward":
        return forwards + backwards
    if name != "1f1b":
        raise PipelineError(f"schedule {name!r} is not known: 'all_forward' or '1f1b'")
    num_ahead = min(num_stages - stage - 1, num_microbatches)
    steps = forwards[:num_ahead]
    for number in range(num_ahead, num_microbatches):
        steps += [forwards[number], backwards[number - num_ahead]]
    return steps + backwards[num_microbatches - num_ahead :]


def simulate(
    name: ScheduleName, num_stages: int, num_microbatches: int, *, capacity: int = 1 << 30
) -> list[list[tuple[int, int, Step]]]:
    """Return for each stage when its steps run, as (begin, end, step), if each takes one unit of time.

    Queues between stages hold ``capacity`` entries.

    Raises:
        PipelineError: the stages would wait for one another for ever.
    """
    plans = [schedule(name, stage, num_stages, num_microbatches) for stage in range(num_stages)]
    done: list[list[tuple[int, int, Step]]] = [[] for _ in plans]
    now = 0
    while any(len(finished) < len(plan) for finished, plan in zip(done, plans, strict=True)):
        ready = [stage for stage in range(num_stages) if _can_run(stage, plans, done, capacity)]
        if not ready:
            raise PipelineError(f"schedule {name!r} deadlocks with queues of {capacity} entries")
        for stage in ready:
            done[stage].append((now, now + 1, plans[stage][len(done[stage])]))
        now += 1
    return done


def _can_run(
    stage: int, plans: list[list[Step]], done: list[list[tuple[int, int, Step]]], capacity: int
) -> bool:
    if len(done[stage]) == len(plans[stage]):
        return False
    kind, number = plans[stage][len(done[stage])]

    def count(of: int, wanted: str) -> int:
        return sum(step[0] == wanted for _, _, step in done[of])

    before, after = (stage - 1, stage + 1) if kind == "F" else (stage + 1, stage - 1)
    inside = range(len(plans))
    has_input = before not in inside or count(before, kind) > number
    has_room = after not in inside or count(stage, kind) - count(after, kind) < capacity
    return has_input and has_room
