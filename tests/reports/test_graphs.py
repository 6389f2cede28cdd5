"""CUDA graphs: what a capture refuses, and what a replay draws, reads and overwrites."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "graphs"


# The first error of a capture, and what leaves `with torch.cuda.graph(…)` because of it.


@pytest.mark.report("pytorch/pytorch#87794", "captured while another device is the current one")
def test_data_of_another_device(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "data_of_another_device.py", {"TORCH_LOOM_DEVICES": "2"})


@pytest.mark.report("pytorch/pytorch#87794", "captured where the data are, as the thread advises")
def test_data_of_the_current_device(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "data_of_the_current_device.py", {"TORCH_LOOM_DEVICES": "2"})


@pytest.mark.report("pytorch/pytorch#124582", "a tensor made of numbers within a captured callable")
def test_numbers_of_the_host_are_not_captured(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "numbers_of_the_host_are_not_captured.py")


@pytest.mark.report(
    "pytorch/pytorch#124582", "a callable without parameters or gradients, its index made outside"
)
def test_a_callable_without_gradients(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_callable_without_gradients.py")


@pytest.mark.report(
    "pytorch/pytorch#84614", "dropout in a graphed callable: a new mask each replay, eager's under one seed"
)
def test_masks_of_replays(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "masks_of_replays.py")


@pytest.mark.report(
    "pytorch/pytorch#181723",
    "parameters take the gradients of a graphed callable, which the next replay overwrites",
)
def test_gradients_are_the_graphs_own(fork_cuda: PythonRunner) -> None:
    # The first gradient becomes `.grad` without a copy, so that each later one is added to itself.
    fork_cuda(PROGRAMS / "gradients_are_the_graphs_own.py")


@pytest.mark.report(
    "pytorch/pytorch#128396", "the gradient of `prod` asks the device how many zeros there are"
)
def test_the_gradient_of_prod_is_not_captured(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "the_gradient_of_prod_is_not_captured.py")


@pytest.mark.report("pytorch/pytorch#102830", "an input of a graphed callable that is no leaf")
def test_an_input_with_a_history(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "an_input_with_a_history.py")


OVERWRITTEN = "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run"


@pytest.mark.slow
@pytest.mark.report(
    "pytorch/pytorch#170604", "`reduce-overhead`: a result that a later call has overwritten is read"
)
@pytest.mark.report("pytorch/pytorch#144386", "`reduce-overhead`: the ways out, a clone and a mark of steps")
def test_results_of_an_earlier_call(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "results_of_an_earlier_call.py", given=OVERWRITTEN)


@pytest.mark.slow
@pytest.mark.report(
    "pytorch/pytorch#160281", "`reduce-overhead`: one compiled function's result is another's input"
)
def test_a_chain_of_compiled_functions(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_chain_of_compiled_functions.py", given=OVERWRITTEN)


@pytest.mark.report(
    "pytorch/pytorch#77673", "`is_current_stream_capturing` before, during and after a capture"
)
def test_whether_a_stream_captures(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "whether_a_stream_captures.py")


BREAKING = {
    "item": "x.sum().item()",
    "cpu": "x.cpu()",
    "from the host": "torch.ones(3).cuda()",
    "synchronize": "torch.cuda.synchronize()",
    "synchronize a stream": "torch.cuda.current_stream().synchronize()",
    "query": "torch.cuda.current_stream().query()",
    "nonzero": "x.nonzero()",
    "mask": "x[x > 0]",
}


@pytest.mark.report(
    "pytorch/pytorch#77673", "what waits for the device makes a capture fail, in CUDA's words"
)
@pytest.mark.parametrize("name", BREAKING)
def test_what_waits_breaks_a_capture(fork_cuda: PythonRunner, name: str) -> None:
    fork_cuda(PROGRAMS / "what_waits_breaks_a_capture.py", given=BREAKING[name])


@pytest.mark.report("pytorch/pytorch#77673", "generators within a capture: registered ones draw, seeds stay")
def test_generators_of_a_capture(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "generators_of_a_capture.py")


@pytest.mark.report(
    "pytorch/pytorch#76247", "out of memory within a capture is out of memory, and work goes on"
)
def test_out_of_memory_within_a_capture(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "out_of_memory_within_a_capture.py")


@pytest.mark.report(
    "pytorch/pytorch#87894",
    "captured on a device that the work is not on: the graph is empty, with a warning",
)
def test_a_capture_without_work(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_capture_without_work.py", {"TORCH_LOOM_DEVICES": "2"})
