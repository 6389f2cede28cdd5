"""Work that nothing orders. Chaos draws the order from a seed: a race is seen in some of many tries."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

CHAOS = {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": "1", "TORCH_LOOM_MEMORY": "1GiB"}
TRIES = 30


@pytest.mark.report("pytorch/pytorch#127612", "pinned memory is written while it is copied to the device")
def test_the_source_of_a_copy_is_written(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        def arrived(is_waited_for):
            source, target = torch.ones(1000, pin_memory=True), torch.zeros(1000, device="cuda")
            target.copy_(source, non_blocking=True)
            if is_waited_for:
                torch.cuda.synchronize()
            source[-1] = -1
            return target[-1].item()

        assert {{arrived(False) for _ in range({TRIES})}} == {{1, -1}}
        assert {{arrived(True) for _ in range({TRIES})}} == {{1}}
        """,
        CHAOS,
    )


@pytest.mark.report(
    "pytorch/pytorch#137951",
    "results copied with `non_blocking=True` are joined on the host before they are there",
)
@pytest.mark.report(
    "pytorch/pytorch#86264", '`.to("cpu", non_blocking=True)` returns before the copy is done'
)
@pytest.mark.report(
    "Lightning-AI/pytorch-lightning#11288", "metrics moved to the host without waiting are wrong"
)
def test_results_are_read_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        def minimum(value, non_blocking):
            parts = []
            for _ in range(3):
                x = torch.full((1000,), value, device="cuda") + 1
                parts.append(x.to("cpu", non_blocking=non_blocking))
                assert parts[-1].is_pinned() == non_blocking
            joined = torch.cat(parts)
            torch.cuda.synchronize()
            assert torch.cat(parts).min() == value + 1
            return joined.min().item()

        # Pinned memory comes again, with what an earlier try has left there.
        values = [float(value) for value in range({TRIES})]
        assert any(minimum(value, True) != value + 1 for value in values)
        assert all(minimum(value, False) == value + 1 for value in values)
        """,
        CHAOS,
    )


@pytest.mark.report("pytorch/pytorch#137878", "pinned memory is read before a copy into it is done")
def test_pinned_memory_is_read_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        def read(value):
            x, target = torch.full((1000,), value, device="cuda"), torch.zeros(1000, pin_memory=True)
            target.copy_(x * 1.0, non_blocking=True)
            early = target[-1].item()
            torch.cuda.synchronize()
            assert target[-1].item() == value
            return early

        assert {{read(7.0) for _ in range({TRIES})}} == {{0, 7}}
        """,
        CHAOS,
    )


@pytest.mark.report(
    "meta-pytorch/torchrec#4231", "memory is given back while a side stream copies it: `record_stream`"
)
def test_memory_given_back_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        def num_corrupt(is_recorded):
            side = torch.cuda.Stream()
            source, target = torch.full((1000,), 7.0, device="cuda"), torch.empty(1000, pin_memory=True)
            side.wait_stream(torch.cuda.current_stream())
            with torch.cuda.stream(side):
                target.copy_(source, non_blocking=True)
            if is_recorded:
                source.record_stream(side)
            del source
            other = torch.full((1000,), float("nan"), device="cuda")
            torch.cuda.synchronize()
            return target.isnan().sum().item()

        assert any(num_corrupt(False) for _ in range({TRIES}))
        assert not any(num_corrupt(True) for _ in range({TRIES}))
        """,
        CHAOS,
    )


PREFETCH = """
def total(is_waited_for):
    stream, target = torch.cuda.Stream(), torch.zeros(1000, device="cuda")
    torch.cuda.synchronize()
    source = torch.ones(1000).pin_memory()
    with torch.cuda.stream(stream):
        target.copy_(source, non_blocking=True)
    if is_waited_for:
        torch.cuda.current_stream().wait_stream(stream)
    found = target.sum().item()
    torch.cuda.synchronize()
    return found
"""


@pytest.mark.report(
    "ROCm/pytorch#3194", "a batch is copied on a side stream, and read without waiting for it"
)
def test_a_batch_is_read_too_early(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        PREFETCH
        + f"""
assert any(total(False) != 1000 for _ in range({TRIES}))
assert all(total(True) == 1000 for _ in range({TRIES}))
""",
        CHAOS,
    )


@pytest.mark.report("ROCm/pytorch#3194", "the sanitizer names both sides of that race, in every run")
def test_the_sanitizer_finds_the_race(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        PREFETCH
        + """
total(True)
raises("CUDASanitizerErrors", "is not ordered after", lambda: total(False))
""",
        {"TORCH_CUDA_SANITIZER": "1"},
    )
