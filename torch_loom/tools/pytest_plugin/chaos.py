"""``--loom-chaos N``: each test runs under N orders of its streams, and the first that fails it is told."""

from __future__ import annotations

import sys

import pytest
from _pytest.runner import runtestprotocol

_HELP = (
    "Run each test under N orders of what its streams leave open (launch mode chaos, seeds 1 to N); a "
    "failure shows its seed."
)


def add_options(group: pytest.OptionGroup) -> None:
    group.addoption("--loom-chaos", type=int, metavar="N", help=_HELP)
    group.addoption(
        "--loom-chaos-seed",
        type=int,
        metavar="SEED",
        help="Run each test once, under the order of this seed.",
    )


def plugin(config: pytest.Config) -> Chaos | None:
    """Return what repeats tests; None without these options.

    Raises:
        pytest.UsageError: a number is out of its range.
    """
    count, seed = config.option.loom_chaos, config.option.loom_chaos_seed
    if seed is not None:
        if count is not None:
            raise pytest.UsageError("--loom-chaos and --loom-chaos-seed exclude each other")
        if not 0 <= seed < 1 << 64:
            raise pytest.UsageError(f"--loom-chaos-seed {seed}: a seed is 0 to 2^64 - 1")
        return Chaos((seed,))
    if count is None:
        return None
    if not 1 <= count <= 10_000:
        raise pytest.UsageError(f"--loom-chaos {count}: the number of orders is 1 to 10000")
    return Chaos(tuple(range(1, count + 1)))


class Chaos:
    """Runs a test, its fixtures included, once for each seed until one fails."""

    def __init__(self, seeds: tuple[int, ...]) -> None:
        self._seeds = seeds

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool:
        hook = item.ihook
        hook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for seed in self._seeds:
            _begin_order(seed)
            reports = runtestprotocol(item, log=False, nextitem=nextitem)
            if not all(report.passed for report in reports):
                break
        for report in reports:
            if report.failed:
                report.sections.append(
                    (
                        "torch-loom",
                        f"launch mode chaos, seed {seed}: `pytest --loom-chaos-seed {seed} "
                        f"'{item.nodeid}'` repeats this order",
                    )
                )
            hook.pytest_runtest_logreport(report=report)
        hook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True


def _begin_order(seed: int) -> None:
    # A test may be the first that imports torch; the devices then begin with the seed of the environment.
    if "torch" not in sys.modules:
        from torch_loom import config

        config.export({"chaos_seed": str(seed)})
        return
    import torch

    from torch_loom.device._core import first_use

    if torch.accelerator.is_available():
        torch._C._accelerator_emptyHostCache()
    first_use.begin_order(seed)
