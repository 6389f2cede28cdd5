"""``mode="reduce-overhead"``: what Inductor compiled is replayed from a graph."""

from __future__ import annotations

import gc
import logging
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch
from torch import nn
from torch.profiler import ProfilerActivity, profile

PROGRAMS = Path(__file__).parent / "programs" / "reduce_overhead"

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from tests.conftest import PythonRunner


def captured(
    function: Callable[[list[Any]], Sequence[Any]], static: Sequence[int] = (), **more: Any
) -> Callable[[list[Any]], Any]:
    from torch_loom.compiler.inductor.graphs import capture

    return capture(function, static, device_index=0, **{"is_backward": False, **more})


def calls_of(function: Callable[..., Sequence[Any]]) -> tuple[Callable[[list[Any]], Any], list[int]]:
    """The function as compiled code is called, and a list that has an entry for each run of its Python."""
    runs: list[int] = []

    def boxed(inputs: list[Any]) -> Sequence[Any]:
        runs.append(len(inputs))
        given = list(inputs)
        inputs.clear()
        return function(*given)

    return boxed, runs


@pytest.mark.long
def test_a_graph_for_each_size_and_none_where_the_setting_says_so() -> None:
    from torch._inductor import config

    function, runs = calls_of(lambda n, x: [x * n, n])
    run = captured(function)
    for n in (2, 3, 2, 3, 2, 3, 5):
        x = torch.arange(float(n), device="loom")
        result, size = run([n, x])
        assert (result.tolist(), size) == ((x.cpu() * n).tolist(), n)
    assert len(runs) == 2 + 2 + 1  # as it is, then captured
    with config.patch({"triton.cudagraph_capture_sizes": (7,)}):
        function, runs = calls_of(lambda n, x: [x * n])
        run = captured(function)
        for n in (7, 7, 7, 6, 6, 6):
            assert run([n, torch.ones(2, device="loom")])[0].tolist() == [n, n]
    assert len(runs) == 2 + 3


def test_parameters_change_once_a_call() -> None:
    total, x = torch.zeros(3, device="loom"), torch.ones(3, device="loom")
    function, runs = calls_of(lambda state, value: [state.add_(value), state[:2]])
    run = captured(function, (0,), mutated_input_idxs=(0,))
    for number in range(1, 6):
        inputs = [total, x]
        result, part = run(inputs)
        assert inputs == []
        assert result is total
        assert part.data_ptr() == total.data_ptr()
        assert total.tolist() == [number] * 3
    assert len(runs) == 2


def test_inputs_that_change_are_refused_with_inductors_reason(caplog: pytest.LogCaptureFixture) -> None:
    from torch._dynamo.utils import counters
    from torch._inductor.cudagraph_utils import PlaceholderInfo, cudagraphs_log

    function, _ = calls_of(lambda x: [x.add_(1)])
    before = counters["inductor"]["cudagraph_skips"]
    info = PlaceholderInfo(name="x", stack_trace=None, users=[], mutating_use_stack_trace="model.py, line 7")
    cudagraphs_log.addHandler(caplog.handler)
    try:
        with caplog.at_level(logging.WARNING, cudagraphs_log.name):
            assert captured(function, placeholders=[info], mutated_input_idxs=[0]) is function
    finally:
        cudagraphs_log.removeHandler(caplog.handler)
    assert counters["inductor"]["cudagraph_skips"] == before + 1
    assert "mutated inputs (1 instances)" in caplog.text
    assert "model.py, line 7" in caplog.text


def test_what_moves_in_a_backward_pass_is_copied() -> None:
    function, runs = calls_of(lambda kept, weight, gradient: [kept * gradient, weight * gradient])
    run = captured(function, (0, 1), is_backward=True)
    weight, alive = torch.full((4,), 3.0, device="loom"), []
    for number in range(6):
        kept = torch.full((4,), float(number), device="loom")
        alive.append(kept)  # so that the next one lies elsewhere
        first, second = run([kept, weight, torch.full((4,), 2.0, device="loom")])
        assert first.tolist() == [2.0 * number] * 4
        assert second.tolist() == [6.0] * 4
    assert len(runs) == 3  # once with the first address, once with all copied, once captured


def test_results_have_the_layout_that_later_code_was_compiled_for() -> None:
    def made(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        y = x * weight
        return [y, y.t(), y[:, ::2], y[:1].expand(4, -1), y, y[:, :0], torch.as_strided(y, (2, 2), (1, 1))]

    function, runs = calls_of(made)
    run = captured(function, (1,))
    weight = torch.full((3, 4), 2.0, device="loom")
    for number in range(1, 5):
        x = torch.arange(12.0, device="loom").reshape(3, 4) * number
        results = run([x, weight])
        for result, expected in zip(results, made(x.cpu(), weight.cpu()), strict=True):
            assert (result.shape, result.stride()) == (expected.shape, expected.stride())
            assert torch.equal(result.cpu(), expected)
        assert results[4] is results[0]
    assert len(runs) == 2


def test_a_result_may_take_the_memory_of_an_input_and_an_input_may_be_a_result() -> None:
    # Around what is not captured, code hands on what later parts read, and reuses what nobody else has.
    function, runs = calls_of(lambda x, scratch: [scratch.add_(x), x])
    run = captured(function)
    for number in range(5):
        x = torch.full((3,), float(number), device="loom")
        result, handed_on = run([x, torch.ones(3, device="loom")])
        assert result.tolist() == [number + 1] * 3
        assert handed_on is x
    assert len(runs) == 2


def test_expanded_inputs_and_a_dry_run_in_between() -> None:
    function, runs = calls_of(lambda x: [x + 1])
    run = captured(function)
    for number in range(4):
        x = torch.full((1, 3), float(number), device="loom").expand(5, 3)
        assert run([x])[0].tolist() == [[number + 1] * 3] * 5
    assert len(runs) == 2
    with torch.loom.dry_run():
        assert run([torch.zeros(1, 3, device="loom").expand(5, 3)])[0].shape == (5, 3)
    assert run([torch.zeros(1, 3, device="loom").expand(5, 3)])[0].sum().item() == 15
    assert len(runs) == 3


@pytest.fixture
def _compiling() -> Iterator[None]:
    from torch._inductor import config

    torch._dynamo.reset()
    with config.patch(compile_threads=1, cpp_cache_precompile_headers=False):
        yield
    torch._dynamo.reset()


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4))


def host_events(call: Callable[[], object]) -> set[str]:
    with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.PrivateUse1]) as found:
        call()
    return {event.name for event in found.events()}


@pytest.mark.slow
@pytest.mark.usefixtures("_compiling")
def test_a_module_is_replayed_for_new_inputs_and_parameters() -> None:
    model = net().eval().to("loom")
    twin = net().eval()
    compiled = torch.compile(model, mode="reduce-overhead")
    with torch.no_grad():
        for _ in range(4):
            x = torch.randn(3, 8)
            torch.testing.assert_close(compiled(x.to("loom")).cpu(), twin(x))
        for one in (*model.parameters(), *twin.parameters()):
            one.mul_(0.5)
        on_device = x.to("loom")
        torch.testing.assert_close(compiled(on_device).cpu(), twin(x))
        names = host_events(lambda: compiled(on_device))
        assert "loomGraphLaunch" in names
        assert not names & {"aten::addmm", "aten::mm"}  # of the host; the device's are called loom::addmm
        for rows in (5, 5, 5):  # another shape is another graph
            x = torch.randn(rows, 8)
            torch.testing.assert_close(compiled(x.to("loom")).cpu(), twin(x))


@pytest.mark.slow
@pytest.mark.usefixtures("_compiling")
def test_training_steps_are_eagers_and_their_memory_is_freed() -> None:
    def losses(model: nn.Module, device: str, step: Callable[[torch.Tensor], torch.Tensor]) -> list[float]:
        optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
        generator, found = torch.Generator().manual_seed(1), []
        for _ in range(6):
            x = torch.randn(6, 8, generator=generator).to(device)
            optimizer.zero_grad()
            loss = step(x).square().mean()
            loss.backward()
            optimizer.step()
            found.append(loss.item())
        return found

    model, twin = net().to("loom"), net()
    compiled = torch.compile(model, mode="reduce-overhead")
    expected = losses(twin, "cpu", twin)
    torch.testing.assert_close(losses(model, "loom", compiled), expected, rtol=1e-4, atol=1e-6)
    torch.testing.assert_close(model[1].running_var.cpu(), twin[1].running_var)  # once a step
    assert model[1].num_batches_tracked.item() == 6
    x = torch.randn(6, 8, device="loom")
    assert "loomGraphLaunch" in host_events(lambda: compiled(x).sum().backward())
    before = torch.loom.memory_allocated()
    torch._dynamo.reset()
    gc.collect()
    assert torch.loom.memory_allocated() < before


@pytest.mark.slow
@pytest.mark.usefixtures("_compiling")
def test_what_runs_on_the_host_is_captured_around() -> None:
    def mixed(x: torch.Tensor) -> torch.Tensor:
        y = (x * 2).sin()
        return y + (y.cpu() + 1).to("loom")

    compiled = torch.compile(mixed, mode="reduce-overhead")
    for _ in range(4):
        x = torch.randn(16)
        expected = (x * 2).sin()
        torch.testing.assert_close(compiled(x.to("loom")).cpu(), expected * 2 + 1)
    x = torch.randn(16, device="loom")
    assert "loomGraphLaunch" in host_events(lambda: compiled(x))


@pytest.mark.slow
@pytest.mark.usefixtures("_compiling")
def test_the_backend_loom_replays_what_inductor_made_of_inference() -> None:
    model, x = net().eval().to("loom"), torch.randn(3, 8, device="loom")
    for replay in (True, False):
        torch._dynamo.reset()
        compiled = torch.compile(model, backend="loom", options={"numerics": "float", "replay": replay})
        with torch.no_grad():
            for _ in range(3):
                torch.testing.assert_close(compiled(x), model(x))
            assert ("loomGraphLaunch" in host_events(lambda run=compiled: run(x))) is replay  # type: ignore[misc]
    compiled = torch.compile(model, backend="loom", options={"numerics": "float"})
    for _ in range(3):
        compiled(x).sum().backward()
    assert "loomGraphLaunch" not in host_events(lambda: compiled(x).sum().backward())


@pytest.mark.slow
def test_under_the_name_cuda(warm_python: PythonRunner) -> None:
    shown = warm_python(PROGRAMS / "under_the_name_cuda.py", {"TORCH_LOOM_DEVICE_NAME": "cuda"})
    assert shown.stdout.split()[-1] == "2"
