"""Random programs: a hypothesis state machine whose rules are the actions of a program."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import hypothesis
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, rule, run_state_machine_as_test

from .fleet import Fleet

MIB = 1 << 20
PROGRAMS_PER_SEED = 10
STEPS_PER_PROGRAM = 60
SEEDS_PER_CHAOS = 5

SIZES = st.one_of(
    st.sampled_from([0, 1, 4, 511, 512, 513]),
    *[st.integers(0, 1 << 16)] * 4,
    st.builds(
        lambda whole, more: max(whole + more, 0),
        st.sampled_from([MIB, 2 * MIB, 4 * MIB, 10 * MIB, 20 * MIB]),
        st.sampled_from([-MIB, -512, -4, 0, 1, 4, 512, MIB]),
    ),
    st.sampled_from([27 * MIB, 47 * MIB, 48 * MIB, 49 * MIB, 1 << 40]),
)
DEVICE = st.integers(0, 1)
STREAM = st.integers(0, 7)
SIDE = st.sampled_from([1, 2, 3, 5, 6, 7])
INDEX = st.integers(0, 15)
VALUE = st.integers(0, 99)
KIND = st.integers(0, 4)
HOW = st.integers(0, 4)
PICKS = st.lists(st.tuples(INDEX, KIND, INDEX, VALUE).map(list), min_size=1, max_size=5)


class Programs(RuleBasedStateMachine):
    """Collects steps; the fleet runs them at the end."""

    def __init__(self, fleet: Fleet) -> None:
        super().__init__()
        self.fleet = fleet
        self.steps: list[list[Any]] = []

    def teardown(self) -> None:
        if self.steps:
            self.fleet.check(self.steps)


def _rule(name: str, **arguments: st.SearchStrategy[Any]) -> Callable[..., None]:
    def append(self: Programs, **values: Any) -> None:
        self.steps.append([name, *(values[key] for key in arguments)])

    append.__name__ = name
    return rule(**arguments)(append)  # type: ignore[call-overload,no-any-return]


_CHANGE = {"index": INDEX, "stream": STREAM, "kind": KIND, "other": INDEX, "value": VALUE, "how": HOW}
_RULES: dict[str, dict[str, Any]] = {
    "allocate": {
        "stream": STREAM,
        "size": SIZES,
        "dtype": st.integers(0, 2),
        "value": VALUE,
        "source": st.integers(0, 2),
    },
    "free": {"index": INDEX, "how": HOW},
    "view": {"index": INDEX, "start": st.integers(0, 2000), "step": st.integers(1, 3)},
    "resize": {"index": INDEX, "size": SIZES, "value": VALUE},
    "empty_cache": {"device": DEVICE},
    "limit_memory": {"device": DEVICE, "eighths": st.sampled_from([8, 8, 8, 6, 4, 1])},
    "record_stream": {"index": INDEX, "stream": STREAM},
    "reset_peaks": {"device": DEVICE},
    "reset_accumulated": {"device": DEVICE},
    "change_in_place": _CHANGE,
    "make": {"index": INDEX, "stream": STREAM, "value": VALUE, "how": HOW},
    "replace": {"index": INDEX, "stream": STREAM, "value": VALUE},
    "copy_between": {"to": INDEX, "source": INDEX, "first": STREAM, "second": STREAM, "how": HOW},
    "copy_pinned": {"index": INDEX, "stream": STREAM, "which": DEVICE, "to_host": DEVICE, "how": HOW},
    "write_pinned": {"which": DEVICE, "value": VALUE},
    "renew_pinned": {"which": DEVICE},
    "write_from_host": {"index": INDEX, "stream": STREAM, "value": VALUE, "how": HOW},
    "record_event": {"event": st.integers(0, 3), "stream": STREAM},
    "wait_event": {"stream": STREAM, "event": st.integers(0, 3)},
    "wait_stream": {"stream": STREAM, "other": STREAM},
    "synchronize": {"what": st.integers(0, 2), "index": STREAM},
    "query": {"what": st.integers(0, 1), "index": STREAM},
    "fail": {"stream": SIDE, "index": INDEX, "waits": st.integers(0, 2)},
    "capture": {"stream": SIDE, "picks": PICKS},
    "replay": {"index": INDEX, "stream": STREAM, "how": HOW},
    "forget_graph": {"index": INDEX},
}
# Hypothesis chooses among rules evenly; these are to come more often.
_OFTEN = {
    "allocate": 5,
    "free": 2,
    "change_in_place": 3,
    "make": 3,
    "copy_between": 2,
    "capture": 3,
    "replay": 2,
}
for _name, _arguments in _RULES.items():
    for _number in range(_OFTEN.get(_name, 1)):
        setattr(Programs, f"{_name}_{_number}", _rule(_name, **_arguments))


def run_seed(seed: int, fleet: Fleet) -> None:
    """Run the programs that a seed means.

    Raises:
        ProgramError: one failed; it was made as short as possible. The message holds it.
    """
    fleet.reseed(seed // SEEDS_PER_CHAOS)

    def machine() -> Programs:
        return Programs(fleet)

    run_state_machine_as_test(
        hypothesis.seed(seed)(machine),  # type: ignore[arg-type]
        settings=settings(
            max_examples=PROGRAMS_PER_SEED,
            stateful_step_count=STEPS_PER_PROGRAM,
            database=None,
            deadline=None,
            report_multiple_bugs=False,
            suppress_health_check=list(HealthCheck),
        ),
    )


def run_for(seconds: float, seed: int, progress: Callable[[int, Fleet], None] | None = None) -> Fleet:
    """Run the programs of `seed`, of the next seed, and so on, until the time is over; return the figures.

    Only those of `seed`, all of them, if `seconds` is 0.

    Raises:
        ProgramError: one failed, with a note that says with which seed.
    """
    with Fleet(seed // SEEDS_PER_CHAOS) as fleet:
        if seconds:
            fleet.deadline = time.monotonic() + seconds
        while True:
            try:
                run_seed(seed, fleet)
            except BaseException:
                print(f"random programs: failed with --stateful-seed {seed}", flush=True)
                raise
            if progress is not None:
                progress(seed, fleet)
            if not seconds or time.monotonic() >= fleet.deadline:
                return fleet
            seed += 1
