"""Inference by PyBuda's run functions, as its documentation says."""

from __future__ import annotations

import queue
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.checks import assert_same, read
from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.execution import compiled_runs
from torch_loom.pybuda.run.commands import Command


def test_a_module_runs_by_itself_again_and_again() -> None:
    module = Echo("direct")
    for _ in range(2):
        given = inputs()
        assert_same([out.value() for out in module.run(*given)], module.reference(*given))
    assert module.get_device() is pybuda.get_tenstorrent_device()
    assert module.get_name() == "direct"


def test_a_module_refuses_to_run_among_others() -> None:
    pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("placed", nn.Identity()))
    with pytest.raises(PyBudaError, match="placed"):
        Projection("other").run(torch.rand(1, SIZE))


@pytest.mark.parametrize("sequential", [False, True])
def test_run_inference_with_inputs(sequential: bool) -> None:
    module = Echo("given")
    dry, wet = inputs()
    # By name in another order, as a tuple, and as PyBuda's tensors.
    given = [{"wet": wet, "dry": dry}, (dry, wet), (pybuda.Tensor.create_from_torch(dry), wet)]
    results = pybuda.run_inference(module, inputs=given, _sequential=sequential)
    assert isinstance(results, queue.Queue)
    for _ in given:
        assert_same(read(results), module.reference(dry, wet))


def test_another_module_takes_the_place_of_the_first() -> None:
    x = torch.rand(2, SIZE)
    first, second = Projection("first"), Projection("second")
    assert_same(read(pybuda.run_inference(first, inputs=[(x,)])), [x @ first.basis.value()])
    assert_same(read(pybuda.run_inference(second, inputs=[(x,)])), [x @ second.basis.value()])
    assert first.get_device() is None


def test_placed_modules_and_a_resumed_run() -> None:
    tt0 = pybuda.TTDevice("tt0")
    module = Echo("placed")
    tt0.place_module(module)
    given = [inputs() for _ in range(4)]
    tt0.push_to_inputs(given[0])
    results = pybuda.run_inference()
    assert_same(read(results), module.reference(*given[0]))
    for one in given[1:3]:
        tt0.push_to_inputs(*one)
    assert pybuda.run_inference(input_count=2) is results
    for one in given[1:3]:
        assert_same(read(results), module.reference(*one))
    new: queue.Queue[Any] = queue.Queue()
    tt0.push_to_inputs(list(given[3]))
    assert pybuda.run_inference(output_queue=new) is new
    assert_same(read(new), module.reference(*given[3]))
    assert results.empty()


def test_inputs_may_come_after_the_run_began() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("late"))
    tt0.push_to_inputs(torch.ones(1, SIZE))
    results = pybuda.run_inference(input_count=3)
    first = read(results)
    for _ in range(2):
        tt0.push_to_inputs(torch.ones(1, SIZE))
        assert_same(read(results), first)


def test_run_without_end_goes_on_until_the_next_run() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("endless"))
    tt0.push_to_inputs(torch.ones(1, SIZE))
    results = pybuda.run_inference(input_count=0)
    for _ in range(3):
        read(results)
        tt0.push_to_inputs(torch.ones(1, SIZE))
    read(results)
    second: queue.Queue[Any] = queue.Queue()
    pybuda.run_inference(input_count=1, output_queue=second)
    tt0.push_to_inputs(torch.ones(1, SIZE))
    read(second)
    assert results.empty()
    with pytest.raises(PyBudaError, match="no end"):
        pybuda.run_inference(input_count=0, _sequential=True)


def test_sequential_runs_what_is_there_and_returns_when_done() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("sequential"))
    for _ in range(2):
        tt0.push_to_inputs(torch.ones(1, SIZE))
    results = pybuda.run_inference(input_count=5, _sequential=True)
    assert results.qsize() == 2


def test_wrong_calls_of_run_inference() -> None:
    with pytest.warns(UserWarning, match="Nothing to do"):
        assert pybuda.run_inference() is None
    with pytest.raises(PyBudaError, match="no module is placed"):
        pybuda.run_inference(inputs=[(torch.ones(1),)])
    with pytest.raises(PyBudaError, match="module of PyBuda, not Linear"):
        pybuda.run_inference(nn.Linear(1, 1))  # type: ignore[arg-type]
    pybuda.TTDevice("tt0", module=Projection("placed"))
    with pytest.raises(RuntimeError, match="Inputs must be pushed into the first device"):
        pybuda.run_inference()
    with pytest.raises(PyBudaError, match="input_count is 2 for 3 inputs"):
        pybuda.run_inference(inputs=[(torch.ones(1, SIZE),)] * 3, input_count=2)
    with pytest.raises(PyBudaError, match="input_count is -1"):
        pybuda.run_inference(input_count=-1)


def test_cpu_and_tt_devices_form_a_pipeline() -> None:
    host = Blend()
    pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("front", host))
    module = Projection("back")
    pybuda.TTDevice("tt1", module=module, chip_ids=[1])
    dry, wet = inputs()
    results = pybuda.run_inference(inputs=[(dry, wet)])
    assert_same(read(results), [(host(dry, wet) @ module.basis.value()).detach()])
    with pytest.raises(PyBudaError, match="takes devices"):
        pybuda.set_device_pipeline(["tt1"])


def test_the_pipeline_can_be_put_in_another_order() -> None:
    second = pybuda.CPUDevice("second", module=pybuda.PyTorchModule("relu", nn.ReLU()))
    first = pybuda.CPUDevice("first", module=pybuda.PyTorchModule("shift", nn.Linear(1, 1)))
    with torch.no_grad():
        first.modules[0].module.weight.fill_(-1)  # type: ignore[attr-defined]
        first.modules[0].module.bias.fill_(0)  # type: ignore[attr-defined]
    pybuda.set_device_pipeline([first, second])
    first.push_to_inputs(torch.ones(1, 1))
    assert read(pybuda.run_inference())[0].item() == 0.0


def test_several_modules_on_one_device_run_in_order() -> None:
    a, b = Projection("a"), Projection("b")
    tt0 = pybuda.TTDevice("tt0", module=[a, b])
    x = torch.rand(2, SIZE)
    tt0.push_to_inputs(x)
    assert_same(read(pybuda.run_inference()), [x @ a.basis.value() @ b.basis.value()])


def test_generative_inference_is_inference() -> None:
    module = Projection("m")
    x = torch.rand(1, SIZE)
    assert_same(read(pybuda.run_generative_inference(module, inputs=[(x,)])), [x @ module.basis.value()])


class _Cache(nn.Module):
    """Returns where a step writes."""

    start = -1

    def set_position(self, start: int, num_tokens: int) -> None:
        self.start, self.num_tokens = start, num_tokens

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 0 + self.start + self.num_tokens / 100


def test_run_generate_says_where_to_write() -> None:
    tt0 = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("cache", _Cache()))
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(torch.ones(1, 1),))
    for arguments, expected in (
        ({"write_index": 2}, 64.01),
        ({"tokens_per_iter": 32, "token_id": 0}, 0.32),
        ({"tokens_per_iter": 1, "token_id": 37}, 37.01),
        ({"write_index": 1, "token_id": 37}, 37.01),
    ):
        tt0.push_to_inputs(torch.ones(1, 1))
        pybuda.run_generate(input_count=1, **arguments)
        assert read(results)[0].item() == pytest.approx(expected)
    with pytest.raises(PyBudaError, match="write_index"):
        pybuda.run_generate()
    with pytest.raises(PyBudaError, match="token 64 is in tile 2: give that write_index, or none"):
        pybuda.run_generate(write_index=1, token_id=64)


def test_a_device_that_generates_says_where_to_write() -> None:
    """By its method, and by a command."""
    cpu = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("cache", _Cache()))
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(torch.ones(1, 1),))
    for run in (
        lambda: cpu.generate(1, 2),
        lambda: cpu.generate(1, -1, tokens_per_iter=1, token_id=64),
        lambda: cpu.run_next_command(Command.run_generate(1, 2)),
    ):
        cpu.push_to_inputs(torch.ones(1, 1))
        run()
        assert read(results)[0].item() == pytest.approx(64.01)


def test_queues_are_answered() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    assert not tt0.run_next_command(Command.get_queues("parameter"))
    answer = tt0.get_command_queue_response()
    assert answer is not None
    assert [one["name"] for one in answer["queues"]] == ["m.basis"]
    assert answer["original_shapes"] == [tuple(tt0.modules[0].basis.value().shape)]  # type: ignore[attr-defined]
    assert not tt0.run_next_command(Command.set_queues("forward", answer["queues"]))
    with pytest.raises(PyBudaError, match="direction 'sideways' is none of"):
        tt0.run_next_command(Command.set_queues("sideways"))
    cpu1 = pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("n", nn.Identity()))
    with pytest.raises(PyBudaError, match="'cpu1' has no queues in DRAM"):
        cpu1.run_next_command(Command.get_queues("input"))


class _InPlace(nn.Module):
    """Writes to a tensor that has another reader, which an export alone makes functional."""

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        rows = x * 1
        flat = rows.view(-1)
        rows += 1
        return flat.view_as(x)


@pytest.mark.long
@pytest.mark.parametrize("is_plain", [True, False])
def test_one_export_at_most(is_plain: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", str(tmp_path))
    exports: list[nn.Module] = []
    export = torch.export.export

    def counted(module: nn.Module, *args: Any, **kwargs: Any) -> Any:
        exports.append(module)
        return export(module, *args, **kwargs)

    monkeypatch.setattr(torch.export, "export", counted)

    def run(seed: int, x: torch.Tensor) -> torch.Tensor:
        torch.manual_seed(seed)
        middle = nn.ReLU() if is_plain else _InPlace()
        net = nn.Sequential(nn.Linear(16, 16), middle, nn.Linear(16, 4))
        device = _wormhole(net)
        results = []
        for _ in range(3):  # a run, a capture, a replay
            device.push_to_inputs(x)
            results.append(pybuda.run_inference(_sequential=True).get(timeout=60)[0].value())
        pybuda.pybuda_reset()
        with torch.no_grad():
            assert (results[0] - net(x)).abs().max() < 0.05
        assert all(torch.equal(results[0], result) for result in results)
        return results[0]

    x = torch.rand(2, 16)
    first, again = run(0, x), run(0, x)
    assert torch.equal(first, again)
    assert not torch.equal(first, run(1, x))  # other parameters, the same program
    assert len(exports) == (0 if is_plain else 1)
    pybuda.config.configure_mixed_precision(op_type="matmul", math_fidelity=pybuda.MathFidelity.LoFi)
    run(0, x)
    assert len(exports) == (1 if is_plain else 2)  # settings that ask for the names of ops


@pytest.mark.long
def test_what_a_forward_and_an_export_make_computes_the_same(tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(nn.Embedding(32, 16), nn.LayerNorm(16), nn.Linear(16, 16), nn.Softmax(-1))
    x = torch.randint(0, 32, (1, 8))
    pybuda.set_configuration_options(default_df_override=pybuda.DataFormat.Float16_b)
    device = _wormhole(net)
    device.push_to_inputs(x)
    own = pybuda.run_inference(_sequential=True).get(timeout=60)[0].value()
    device.compile_to_image(img_path=str(tmp_path / "net.tti"), sample_inputs=(x,))
    pybuda.pybuda_reset()
    image = pybuda.TTDevice.load_image(img_path=str(tmp_path / "net.tti"))
    image.push_to_inputs(x)
    assert torch.equal(own, pybuda.run_inference(_sequential=True).get(timeout=60)[0].value())


def _wormhole(net: nn.Module) -> pybuda.TTDevice:
    return pybuda.TTDevice(
        "tt0",
        module=pybuda.PyTorchModule("net", net),
        arch=pybuda.BackendDevice.Wormhole_B0,
        devtype=pybuda.BackendType.Silicon,
    )


def test_a_wrong_size_is_said_by_the_error_alone(caplog: pytest.LogCaptureFixture) -> None:
    device = pybuda.TTDevice(
        "tt0", module=pybuda.PyTorchModule("m", nn.Linear(16, 4)), arch=pybuda.BackendDevice.Wormhole_B0
    )
    device.push_to_inputs(torch.rand(2, 15))
    with pytest.raises(RuntimeError, match="15"):
        pybuda.run_inference(_sequential=True)
    assert not [record for record in caplog.records if record.levelname in ("WARNING", "ERROR")]


def test_many_shapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shapes whose modules are not compiled take no place from those that are."""
    monkeypatch.setattr(compiled_runs, "MAX_PROGRAMS", 2)

    class Branches(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return super().forward(x) if x.shape[1] < 3 or x.sum() > 0 else x

    device = _wormhole(Branches(4, 4))
    reasons = []
    for size in (3, 1, 2, 1, 3, 4):
        device.push_to_inputs(torch.ones(1, size, 4))
        assert read(pybuda.run_inference(_sequential=True))[0].shape == (1, size, 4)
        reasons.append(device._runs.reason if device._runs else "")
    assert reasons[0]
    assert not any(reasons[1:3])
    assert reasons[5] == "there are 2 shapes already"


class _Counts(nn.Module):
    """Keeps state in an attribute, in a list and in a tensor that is no buffer."""

    def __init__(self) -> None:
        super().__init__()
        self.calls, self.seen = 0, ([], torch.nn.Identity())
        self.last = torch.zeros(())

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        self.calls += 1
        self.seen[0].append(x.shape)
        self.last = self.last + x
        return self.last * self.calls + len(self.seen[0])


def test_state_that_is_no_buffer_is_kept_as_by_pytorch() -> None:
    device, net = _wormhole(_Counts()), _Counts()
    x = torch.ones(1, 4)
    for _ in range(4):
        device.push_to_inputs(x)
        assert torch.equal(read(pybuda.run_inference(_sequential=True))[0], net(x))
    assert device._runs is not None
    assert device._runs.reason == "the modules keep state from one input to the next"


class _Cached(nn.Linear):
    """Makes a table at its first call, as embeddings of positions do."""

    table: torch.Tensor | None = None

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        if self.table is None:
            self.table = x.new_ones(4)
        return super().forward(x) + self.table


def test_what_a_first_forward_keeps_for_all_is_compiled_later() -> None:
    device = _wormhole(_Cached(4, 4))
    results = []
    for _ in range(3):
        device.push_to_inputs(torch.ones(1, 4))
        results.append(read(pybuda.run_inference(_sequential=True))[0])
    assert device._runs is not None
    assert device._runs.reason == ""
    assert all(torch.equal(results[0], result) for result in results)


def test_inputs_of_all_shapes_meet_the_same_parameters() -> None:
    net = nn.Linear(4, 4, bias=False)
    nn.init.ones_(net.weight)
    device = _wormhole(net)

    def run(*shape: int) -> float:
        device.push_to_inputs(torch.ones(1, *shape))
        return float(read(pybuda.run_inference(_sequential=True))[0].flatten()[0])

    assert run(3, 4) == 4
    net.weight.data.mul_(2)
    assert run(3, 4) == 4  # the device's are its own
    assert run(5, 4) == run(3, 4)
    net.weight.data.mul_(2)
    assert run(5, 4) == run(3, 4) == run(7, 4)
