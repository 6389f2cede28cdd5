"""PyBuda's run functions do what its documentation says."""

from __future__ import annotations

import multiprocessing
import queue
import threading
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import PipelineError, PyBudaError, QueueFullError, StageError
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType, DeviceMode

SECONDS = 60


def read(results: Any) -> list[torch.Tensor]:
    return [tensor.value() for tensor in results.get(timeout=SECONDS)]


def same(got: Any, expected: Any) -> None:
    torch.testing.assert_close(list(got), list(expected), rtol=0, atol=0)


def test_a_module_runs_by_itself_again_and_again() -> None:
    module = Echo("direct")
    for _ in range(2):
        given = inputs()
        same([out.value() for out in module.run(*given)], module.reference(*given))
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
        same(read(results), module.reference(dry, wet))


def test_another_module_takes_the_place_of_the_first() -> None:
    x = torch.rand(2, SIZE)
    first, second = Projection("first"), Projection("second")
    same(read(pybuda.run_inference(first, inputs=[(x,)])), [x @ first.basis.value()])
    same(read(pybuda.run_inference(second, inputs=[(x,)])), [x @ second.basis.value()])
    assert first.get_device() is None


def test_placed_modules_and_a_resumed_run() -> None:
    tt0 = pybuda.TTDevice("tt0")
    module = Echo("placed")
    tt0.place_module(module)
    given = [inputs() for _ in range(4)]
    tt0.push_to_inputs(given[0])
    results = pybuda.run_inference()
    same(read(results), module.reference(*given[0]))
    for one in given[1:3]:
        tt0.push_to_inputs(*one)
    assert pybuda.run_inference(input_count=2) is results
    for one in given[1:3]:
        same(read(results), module.reference(*one))
    new: queue.Queue[Any] = queue.Queue()
    tt0.push_to_inputs(list(given[3]))
    assert pybuda.run_inference(output_queue=new) is new
    same(read(new), module.reference(*given[3]))
    assert results.empty()


def test_inputs_may_come_after_the_run_began() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("late"))
    tt0.push_to_inputs(torch.ones(1, SIZE))
    results = pybuda.run_inference(input_count=3)
    first = read(results)
    for _ in range(2):
        tt0.push_to_inputs(torch.ones(1, SIZE))
        same(read(results), first)


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
    same(read(results), [(host(dry, wet) @ module.basis.value()).detach()])
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
    same(read(pybuda.run_inference()), [x @ a.basis.value() @ b.basis.value()])


def trained(sequential: bool, devices: int) -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    """Losses and parameters of a training run over so many devices."""
    torch.manual_seed(5)
    parts = [nn.Linear(SIZE, SIZE), nn.Sequential(nn.Tanh(), nn.Linear(SIZE, SIZE))]
    optimizer = pybuda.optimizers.Adam(0.01, device_params=True)
    if devices == 1:
        first = pybuda.TTDevice(
            "tt0",
            module=[pybuda.PyTorchModule(f"{k}", part) for k, part in enumerate(parts)],
            optimizer=optimizer,
        )
        last: pybuda.Device = first
    else:
        first = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("0", parts[0]), optimizer=optimizer)
        last = pybuda.CPUDevice(
            "cpu1",
            optimizer_f=lambda p: torch.optim.Adam(p, lr=0.01),
            module=pybuda.PyTorchModule("1", parts[1]),
        )
    last.place_loss_module(pybuda.PyTorchModule("mse", nn.MSELoss()))
    for _ in range(2 * 3 * 2):
        first.push_to_inputs(torch.rand(4, SIZE))
        last.push_to_target_inputs(torch.rand(4, SIZE))
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.run_training(
        epochs=1, steps=2, accumulation_steps=2, microbatch_count=3, loss_queue=losses, _sequential=sequential
    )
    got = [read(losses)[0] for _ in range(12)]
    final = {}
    for part in checkpoints.get(timeout=SECONDS):
        final.update({name: tensor.value() for name, tensor in part.items()})
    pybuda.pybuda_reset()
    return got, final


def reference() -> tuple[list[torch.Tensor], dict[str, torch.Tensor]]:
    torch.manual_seed(5)
    parts = [nn.Linear(SIZE, SIZE), nn.Sequential(nn.Tanh(), nn.Linear(SIZE, SIZE))]
    optimizer = torch.optim.Adam([p for part in parts for p in part.parameters()], lr=0.01)
    data = [(torch.rand(4, SIZE), torch.rand(4, SIZE)) for _ in range(12)]
    losses = []
    for number, (x, target) in enumerate(data):
        if number % 6 == 0:
            optimizer.zero_grad()
        loss = nn.functional.mse_loss(parts[1](parts[0](x)), target)
        loss.backward()
        losses.append(loss.detach())
        if number % 6 == 5:
            optimizer.step()
    return losses, {name: p.detach() for part in parts for name, p in part.named_parameters()}


@pytest.mark.parametrize(("sequential", "devices"), [(False, 1), (False, 2), (True, 2)])
def test_training_equals_plain_pytorch(sequential: bool, devices: int) -> None:
    losses, parameters = reference()
    got, final = trained(sequential, devices)
    same(got, losses)
    assert final.keys() == parameters.keys()
    torch.testing.assert_close(final, parameters, rtol=0, atol=0)


def manual() -> tuple[pybuda.TTDevice, pybuda.CPUDevice]:
    tt0 = pybuda.TTDevice(
        "tt0", module=Echo("front"), optimizer=pybuda.optimizers.SGD(0.1, device_params=True)
    )
    cpu1 = pybuda.CPUDevice(
        "cpu1",
        module=pybuda.PyTorchModule("back", Blend()),
        # Called with a list that has parameters() too: both ways of writing it work.
        optimizer_f=lambda m: torch.optim.SGD(m.parameters(), lr=0.5),
    )
    cpu1.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    return tt0, cpu1


def test_training_by_hand() -> None:
    tt0, cpu1 = manual()
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.initialize_pipeline(
        training=True, output_queue=losses, sample_inputs=inputs(), sample_targets=(inputs()[0],)
    )
    before = pybuda.get_parameter_checkpoint()
    for step in range(2):
        for accumulated in range(2):
            tt0.push_to_inputs(inputs())
            cpu1.push_to_target_inputs(inputs()[0])
            pybuda.run_forward(input_count=1)
            pybuda.run_backward(input_count=1, zero_grad=accumulated == 0)
        pybuda.run_optimizer(checkpoint=True)
        parts = checkpoints.get(timeout=SECONDS)
        assert [sorted(part) for part in parts] == [
            ["front.delayed", "front.direct"],
            ["left", "right"],
        ], step
    assert len([read(losses) for _ in range(4)]) == 4
    same(
        [parts[0][k].value() for k in parts[0]],
        [pybuda.get_parameter_checkpoint(tt0)[0][k].value() for k in parts[0]],
    )
    assert not torch.equal(parts[1]["left"].value(), before[1]["left"].value())
    # SGD: the step is the gradient times the rate.
    grads = pybuda.get_parameter_gradients()
    assert [sorted(part) for part in grads] == [sorted(part) for part in parts]
    assert all(grad.value().abs().sum() > 0 for part in grads for grad in part.values())


def test_parameters_updated_on_the_host() -> None:
    tt0, cpu1 = manual()
    pybuda.initialize_pipeline(training=True, sample_inputs=inputs(), sample_targets=(inputs()[0],))
    tt0.push_to_inputs(inputs())
    cpu1.push_to_target_inputs(inputs()[0])
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    grads = pybuda.get_parameter_gradients(tt0)
    params = pybuda.get_parameter_checkpoint(tt0)
    for name in params[0]:
        params[0][name].value().grad = grads[0][name].value()
    torch.optim.SGD([p.value() for p in params[0].values()], lr=10.0).step()
    pybuda.update_device_parameters(tt0, params)
    now = pybuda.get_parameter_checkpoint(tt0)[0]
    same([now[k].value() for k in now], [params[0][k].value() for k in now])
    with pytest.raises(PyBudaError, match="1 dicts of parameters for 2 devices"):
        pybuda.update_device_parameters(parameters=params)
    with pytest.raises(PipelineError, match="no parameter 'other'"):
        pybuda.update_device_parameters(tt0, [{"other": torch.ones(1)}])
    with pytest.raises(PyBudaError, match="not part of the running pipeline"):
        pybuda.get_parameter_checkpoint(pybuda.CPUDevice("unused"))


@pytest.mark.parametrize("kind", [queue.Queue, multiprocessing.get_context("spawn").Queue])
def test_device_to_device_queues(kind: Any) -> None:
    tt0 = pybuda.TTDevice("tt0", module=Echo("front"))
    pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("back", Blend()))
    cpu2 = pybuda.CPUDevice("cpu2", module=pybuda.PyTorchModule("end", nn.Linear(SIZE, SIZE)))
    cpu2.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    forward, backward = [kind(), kind()], [kind(), kind()]
    target = inputs()[0]
    pybuda.initialize_pipeline(
        training=True,
        d2d_fwd_queues=forward,
        d2d_bwd_queues=backward,
        sample_inputs=inputs(),
        sample_targets=(target,),
    )
    tt0.push_to_inputs(inputs())
    cpu2.push_to_target_inputs(target)
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    assert [len(read(q)) for q in forward] == [2, 1]
    assert [len(read(q)) for q in backward] == [2, 1]
    with pytest.raises(PipelineError, match="3 forward"):
        pybuda.initialize_pipeline(
            training=False, d2d_fwd_queues=[queue.Queue() for _ in range(3)], sample_inputs=inputs()
        )


def test_wrong_calls_of_training() -> None:
    for call in (pybuda.run_forward, pybuda.run_backward, pybuda.run_optimizer, pybuda.run_schedulers):
        with pytest.raises(PyBudaError, match="initialize_pipeline"):
            call()
    with pytest.raises(PyBudaError, match="sample_targets"):
        pybuda.initialize_pipeline(training=False, sample_targets=(torch.ones(1),))
    with pytest.raises(RuntimeError, match="checkpoint_queue"):
        pybuda.initialize_pipeline(training=False, checkpoint_queue=queue.Queue())
    for name in ("epochs", "steps", "accumulation_steps", "microbatch_count"):
        with pytest.raises(RuntimeError, match=f"{name} is 0"):
            pybuda.run_training(**{name: 0})
    with pytest.raises(PyBudaError, match="nothing is placed"):
        pybuda.run_training()
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    cpu1 = pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("n", nn.Identity()))
    with pytest.raises(PyBudaError, match="it is placed on no device"):
        pybuda.run_training()
    tt0.place_loss_module(pybuda.op.loss.L1Loss("early"))
    with pytest.raises(PyBudaError, match="last device, 'cpu1', and there alone; it is placed on tt0"):
        pybuda.run_training()
    tt0.remove_loss_module()
    cpu1.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    tt0.push_to_inputs(torch.ones(1, SIZE))
    with pytest.raises(PyBudaError, match="Targets must be pushed"):
        pybuda.run_training()


def test_schedulers_reach_the_devices() -> None:
    class Halving(pybuda.schedulers.LearningRateScheduler):
        def get_lr(self) -> float:
            return self.optimizer.learning_rate / 2

    optimizer = pybuda.optimizers.SGD(1.0, device_params=True)
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"), optimizer=optimizer, scheduler=Halving(optimizer))
    tt0.place_loss_module(pybuda.op.loss.L1Loss("l1"))
    pybuda.initialize_pipeline(
        training=True, sample_inputs=(torch.ones(1, SIZE),), sample_targets=(torch.ones(1, SIZE),)
    )
    for sequential in (True, False):
        pybuda.run_schedulers(sequential)
    pybuda.sync()
    assert optimizer.learning_rate == 0.25
    assert tt0.stage is not None
    assert tt0.stage.optimizer.param_groups[0]["lr"] == 0.25
    assert tt0.get_scheduler_params(is_buda=False) == {"m.basis": {"learning_rate": 0.25}}
    assert tt0.get_optimizer_params(is_buda=False) == {"m.basis": {"learning_rate": 0.25}}


def test_an_error_reaches_who_reads_pushes_and_waits() -> None:
    class Broken(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            raise ArithmeticError("out of order")

    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("broken", Broken()))
    cpu0.push_to_inputs(torch.ones(1, 1))
    results = pybuda.run_inference()
    for use in (
        results.get,
        pybuda.sync,
        pybuda.run_inference,
        lambda: cpu0.push_to_inputs(torch.ones(1, 1)),
    ):
        with pytest.raises(ArithmeticError, match="stage 'cpu0' failed") as caught:
            use()
        assert isinstance(caught.value, StageError)
    assert pybuda.error_raised()
    pybuda.shutdown()
    pybuda.shutdown()
    assert not pybuda.error_raised()


def test_batches_are_compared() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Echo("m"))
    with pytest.raises(RuntimeError, match="one size, or 1"):
        tt0.push_to_inputs(torch.ones(2, 1), torch.ones(3, 1))
    tt0.push_to_inputs(torch.ones(2, 1), torch.ones(1, 1))
    with pytest.raises(RuntimeError, match="Batch size mismatch between first input and current input"):
        tt0.push_to_inputs(torch.ones(3, 1), torch.ones(3, 1))
    with pytest.raises(TypeError, match="not str"):
        tt0.push_to_inputs("x")
    with pytest.raises(TypeError):
        tt0.push_to_inputs()
    size, (first, second) = tt0.get_first_inputs(peek=True)
    assert (size, first.shape, second.shape) == (2, (2, 1), (1, 1))
    assert tt0.get_first_inputs()[0] == 2
    with pytest.raises(PyBudaError, match="Inputs must be pushed"):
        tt0.get_first_inputs()
    tt0.push_to_target_inputs(torch.ones(2, 2))
    assert tt0.get_first_targets()[0].shape == (2, 2)


@pytest.mark.parametrize("on_host", [True, False])
def test_queues_hold_the_configured_number_of_entries(on_host: bool) -> None:
    _get_global_compiler_config().input_queue_entries = 3
    pybuda.set_configuration_options(input_queues_on_host=on_host)
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    for _ in range(3):
        tt0.push_to_inputs(torch.ones(1, SIZE))
    with pytest.raises(QueueFullError, match="input_queue_entries"):
        tt0.push_to_inputs(torch.ones(1, SIZE))
    feed = tt0.input_channel().peek()
    assert feed is not None
    assert feed.parcel is not None
    assert (feed.parcel.tensors[0].device.type == "cpu") is on_host  # type: ignore[union-attr]
    results = pybuda.run_inference(input_count=6)
    done = threading.Event()

    def push() -> None:
        for _ in range(3):
            tt0.push_to_inputs(torch.ones(1, SIZE))
        done.set()

    threading.Thread(target=push, daemon=True).start()
    assert done.wait(SECONDS), "a push waits while the queue drains"
    for _ in range(6):
        read(results)


def test_placement_rules() -> None:
    tt0, cpu0 = pybuda.TTDevice("tt0"), pybuda.CPUDevice("cpu0")
    with pytest.raises(PyBudaError, match="there is a device 'tt0'"):
        pybuda.TTDevice("tt0")
    with pytest.raises(PyBudaError, match="takes modules of PyBuda, not Linear"):
        tt0.place_module(nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(PyBudaError, match="cannot run on CPU device"):
        cpu0.place_module(Projection("m"))
    tt0.place_module(Projection("m"))
    with pytest.raises(RuntimeError, match="'m' is placed already"):
        tt0.place_module(Projection("m"))
    with pytest.raises(RuntimeError, match="a loss is a module of PyBuda"):
        cpu0.place_loss_module(nn.L1Loss())  # type: ignore[arg-type]
    tt0.remove_modules()
    assert tt0.modules == []
    with pytest.raises(PyBudaError, match=r"chips \[7\]"):
        pybuda.TTDevice("far", chip_ids=[7])
    with pytest.raises(PyBudaError, match="num_chips is 1, and 2"):
        pybuda.TTDevice("two", num_chips=1, chip_ids=[0, 1])
    assert pybuda.TTDevice("all", num_chips=0).chip_ids == [0, 1]
    with pytest.raises(PyBudaError, match="devtype"):
        pybuda.TTDevice("wrong", devtype="Golden")  # type: ignore[arg-type]
    golden = pybuda.TTDevice("g", arch=BackendDevice.Wormhole_B0, devtype=BackendType.Golden)
    config = golden.get_device_config()
    assert (config["arch"], config["devtype"]) == (BackendDevice.Wormhole_B0, BackendType.Golden)


def test_compile_only_never_runs() -> None:
    pybuda.TTDevice("tt0", module=Projection("m"))
    pybuda.initialize_pipeline(
        training=False, sample_inputs=(torch.ones(1, SIZE),), _device_mode=DeviceMode.CompileOnly
    )
    with pytest.raises(PyBudaError, match="CompileOnly"):
        pybuda.run_forward()


def test_run_only_refuses_to_compile() -> None:
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"), device_mode=DeviceMode.RunOnly)
    with pytest.raises(PyBudaError, match="RunOnly"):
        tt0.compile_for((pybuda.Tensor.create_from_torch(torch.ones(1, SIZE)),))


def test_cpu_device_casts_its_inputs() -> None:
    class Kept(nn.Module):
        def forward(self, *args: torch.Tensor) -> torch.Tensor:
            seen.append([arg.dtype for arg in args])
            return args[0]

    seen: list[list[torch.dtype]] = []
    pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("kept", Kept()))
    half = torch.ones(1, dtype=torch.bfloat16)
    read(pybuda.run_inference(inputs=[(half, half.half())]))
    assert seen == [[torch.float32, torch.float32]]
    pybuda.pybuda_reset()
    pybuda.CPUDevice(
        "cpu0", module=pybuda.PyTorchModule("kept", Kept()), input_dtypes=[torch.float64, torch.int32]
    )
    read(pybuda.run_inference(inputs=[(half, half)]))
    assert seen[1] == [torch.float64, torch.int32]


def test_retain_backward_graph() -> None:
    kept: list[torch.Tensor] = []

    class Watched(nn.Module):
        def forward(self, x: torch.Tensor, target: torch.Tensor) -> torch.Tensor:
            kept.append((x * x * target).sum())
            return kept[-1]

    for retained in (True, False):
        cpu0 = pybuda.CPUDevice(
            f"cpu{retained}",
            module=pybuda.PyTorchModule("l", nn.Linear(1, 1)),
            retain_backward_graph=retained,
        )
        cpu0.place_loss_module(pybuda.PyTorchModule("loss", Watched()))
        cpu0.push_to_inputs(torch.ones(1, 1))
        cpu0.push_to_target_inputs(torch.ones(1, 1))
        pybuda.run_training()
        pybuda.sync()
        if retained:
            kept[-1].backward()
        else:
            with pytest.raises(RuntimeError, match="second time"):
                kept[-1].backward()
        pybuda.pybuda_reset()


def test_tapouts_keep_an_ops_values() -> None:
    module = Echo("m")
    handle = module.insert_tapout_queue_for_op("tail", 0)
    tt0 = pybuda.TTDevice("tt0", module=module)
    given = inputs()
    tt0.push_to_inputs(given)
    read(pybuda.run_inference())
    same(tt0.get_tapout_values(handle), [given[1] @ module.delayed.value()])
    assert tt0.get_tapout_values(handle) == []
    module.insert_tapout_queue_for_op("hiss", 0)
    tt0.push_to_inputs(given)
    with pytest.raises(PyBudaError, match="'hiss' to tap; its ops are tail, through"):
        pybuda.run_inference().get(timeout=SECONDS)


def test_op_intermediates() -> None:
    pybuda.set_configuration_options(op_intermediates_to_save=["tail", "through"])
    module = Echo("m")
    given = inputs()
    read(pybuda.run_inference(module, inputs=[given]))
    saved = read(pybuda.get_intermediates_queue())
    same(saved, [given[1] @ module.delayed.value(), given[0] @ module.direct.value()])


def test_detect_available_devices_lists_the_virtual_chips() -> None:
    assert pybuda.detect_available_devices() == ["loom1", "loom1"]
    assert not pybuda.is_silicon()


def test_generative_inference_is_inference() -> None:
    module = Projection("m")
    x = torch.rand(1, SIZE)
    same(read(pybuda.run_generative_inference(module, inputs=[(x,)])), [x @ module.basis.value()])


def test_run_generate_says_where_to_write() -> None:
    class Cache(nn.Module):
        start = -1

        def set_position(self, start: int, num_tokens: int) -> None:
            self.start, self.num_tokens = start, num_tokens

        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x * 0 + self.start + self.num_tokens / 100

    tt0 = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("cache", Cache()))
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(torch.ones(1, 1),))
    for arguments, expected in (
        ({"write_index": 2}, 64.01),
        ({"tokens_per_iter": 32, "token_id": 0}, 0.32),
        ({"tokens_per_iter": 1, "token_id": 37}, 37.01),
    ):
        tt0.push_to_inputs(torch.ones(1, 1))
        pybuda.run_generate(input_count=1, **arguments)
        assert read(results)[0].item() == pytest.approx(expected)
    with pytest.raises(PyBudaError, match="write_index"):
        pybuda.run_generate()
