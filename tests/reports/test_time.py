"""Time: events between kernels, and profiles."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner


@pytest.mark.report("pytorch/pytorch#85796", "`elapsed_time` of an event that is not complete")
@pytest.mark.report("pytorch/tutorials#3165", "events are waited for before their time is read")
def test_events_that_are_not_complete(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        from tests.gate import installed
        start, end, unrecorded = (torch.cuda.Event(enable_timing=True) for _ in range(3))
        untimed, side = torch.cuda.Event(), torch.cuda.Stream()
        with installed() as gate:
            start.record(side)
            gate.hold(side)
            end.record(side)
            untimed.record(side)
            assert start.query() and not end.query()
            for event, text in (
                (end, "Both events must be completed before calculating elapsed time."),
                (unrecorded, "Both events must be recorded before calculating elapsed time."),
                (untimed, "Both events must be created with argument 'enable_timing=True'."),
            ):
                try:
                    start.elapsed_time(event)
                except (RuntimeError, ValueError) as error:
                    assert text in str(error), error
                else:
                    raise AssertionError(text)
            gate.open()
            end.synchronize()
            assert end.query() and start.elapsed_time(end) > 0
        """
    )


@pytest.mark.report(
    "https://docs.pytorch.org/tutorials/recipes/recipes/profiler_recipe.html",
    "the tables and traces of a profile that tutorials print",
)
def test_profiles(fork_cuda: PythonRunner, tmp_path: Path) -> None:
    fork_cuda(
        f"""
        import json
        from torch.profiler import ProfilerActivity, profile, record_function
        model, x = torch.nn.Linear(64, 64).cuda(), torch.randn(8, 64)
        both = [ProfilerActivity.CPU, ProfilerActivity.CUDA]
        with profile(activities=both, profile_memory=True, record_shapes=True) as found:
            with record_function("step"):
                model(x.cuda()).relu().sum().backward()
                torch.cuda.synchronize()
        table = found.key_averages().table(sort_by="cuda_time_total", row_limit=-1)
        for text in (
            *("Self CUDA", "CUDA total", "CUDA Mem", "Self CUDA time total"),
            *("Memcpy HtoD (Pageable -> Device)", "aten::addmm", "cudaLaunchKernel", "step"),
        ):
            assert text in table, text
        found.export_chrome_trace({str(tmp_path / "trace.json")!r})
        with open({str(tmp_path / "trace.json")!r}) as file:
            kinds = {{event.get("cat") for event in json.load(file)["traceEvents"]}}
        assert {{"cpu_op", "cuda_runtime", "kernel", "gpu_memcpy", "user_annotation", "ac2g"}} <= kinds, kinds
        """
    )
