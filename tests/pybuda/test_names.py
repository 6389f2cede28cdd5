"""Names of PyBuda: those that the other tests do not use, and docs/pybuda_parity.md."""

from __future__ import annotations

import queue
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.models import SIZE, Blend, Echo, Projection, inputs
from tools.parity import pybuda as parity
from torch_loom import pybuda
from torch_loom.errors import PyBudaError
from torch_loom.pybuda import module
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.run.api import get_checkpoint_queue

ROOT = Path(__file__).parents[2]


@pytest.mark.long
def test_every_name_is_there_and_has_a_test() -> None:
    assert parity.problems(ROOT) == []


@pytest.mark.long
def test_the_page_is_up_to_date() -> None:
    assert (ROOT / parity.FILE).read_text(encoding="utf-8") == parity.document(ROOT), "run `make docs`"


def test_no_documented_name_is_dropped() -> None:
    """Changing this count is a decision: the documents do not change."""
    assert sum(name.kind != "public" for name in parity.names()) == 164


def test_documented_members_exist() -> None:
    members = [name for name in parity.names() if name.kind == "member"]
    assert len(members) == 22
    for name in members:
        enumeration = getattr(pybuda, name.owner)
        assert enumeration[name.last].name == name.last


def test_generation_on_a_device() -> None:
    x = torch.rand(2, SIZE)
    tt0 = pybuda.TTDevice("tt0", module=Projection("m"))
    cpu1 = pybuda.CPUDevice("cpu1", module=pybuda.PyTorchModule("n", nn.Identity()))
    results = pybuda.initialize_pipeline(training=False, sample_inputs=(x,))
    tt0.push_to_inputs(x)
    tt0.generate(1, 0, 1, 5)
    cpu1.generate(1, write_index=0)
    expected = x @ tt0.modules[0].basis.value()  # type: ignore[attr-defined]
    assert torch.equal(results.get(timeout=60)[0].value(), expected)
    with pytest.raises(PyBudaError, match="write_index is -1"):
        cpu1.generate(1, -1)
    with pytest.raises(PyBudaError, match="tokens_per_iter"):
        tt0.generate(1, -1)


def test_forward_pt_and_compile_for_pt_of_a_cpu_device() -> None:
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("b", Blend()))
    given = inputs()
    traced = [pybuda.Tensor.create_from_torch(value) for value in given]
    [made] = cpu0.compile_for_pt(tuple(traced), _get_global_compiler_config(), microbatch_size=4)
    assert tuple(made.shape) == (4, SIZE, SIZE)
    results = pybuda.initialize_pipeline(training=False, sample_inputs=given)
    cpu0.push_to_inputs(given)
    cpu0.forward_pt(1)
    got = results.get(timeout=60)[0].value()
    assert torch.equal(got, cpu0.cpueval_forward_pt(list(given), {}, False)[0])
    assert list(cpu0.pop_parameter_checkpoint()) == ["left", "right"]
    with pytest.raises(PyBudaError, match="no TFModule"):
        cpu0.cpueval_forward_tf(list(given), {}, False)


def test_losses_of_a_loop_of_ones_own_have_a_queue() -> None:
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("n", nn.Linear(SIZE, 1)))
    cpu0.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    x, target = torch.rand(2, SIZE), torch.rand(2, 1)
    cpu0.push_to_inputs(x)
    cpu0.push_to_target_inputs(target)
    pybuda.initialize_pipeline(training=True, sample_inputs=(x,), sample_targets=(target,))
    pybuda.run_forward()
    pybuda.run_backward(zero_grad=True)
    assert pybuda.get_loss_queue().get(timeout=60) is not None


def test_gradients_of_a_cpu_device_can_be_watched() -> None:
    seen: queue.Queue[Any] = queue.Queue()
    cpu0 = pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("n", nn.Linear(SIZE, 1)))
    cpu0.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
    cpu0.set_debug_gradient_trace_queue(seen)
    cpu0.push_to_inputs(torch.rand(2, SIZE))
    cpu0.push_to_target_inputs(torch.rand(2, 1))
    losses: queue.Queue[Any] = queue.Queue()
    checkpoints = pybuda.run_training(loss_queue=losses, _sequential=True)
    assert seen.get(timeout=60)[0].value().item() == 1.0
    assert pybuda.get_loss_queue() is losses
    assert get_checkpoint_queue() is checkpoints


def test_pre_forward_comes_first() -> None:
    class Counts(Echo):
        calls = 0

        def pre_forward(self, *args: Any, **kwargs: Any) -> None:
            self.calls += 1

    module = Counts("m")
    module.run(*inputs())
    assert isinstance(module, pybuda.PyBudaModule)
    assert module.calls == 1
    module.pre_forward()
    assert module.calls == 2


class _Tape:
    """A stand-in for TensorFlow's: it remembers nothing and answers with what it is asked."""

    def __init__(self, persistent: bool) -> None:
        self.persistent = persistent

    def __enter__(self) -> _Tape:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def gradient(self, outputs: Any, variables: Any, output_gradients: Any) -> list[Any]:
        return [(variable, *outputs, *output_gradients) for variable in variables]


def test_tensorflow_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "tensorflow", None)
    with pytest.raises(PyBudaError, match="needs TensorFlow, which is not installed"):
        pybuda.TFModule("m", object())
    stand_in = types.ModuleType("tensorflow")
    stand_in.convert_to_tensor = lambda array: array.tolist()  # type: ignore[attr-defined]
    stand_in.GradientTape = _Tape  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "tensorflow", stand_in)

    class Model:
        trainable_variables = ("v",)

        def __call__(self, x: list[float]) -> list[float]:
            return [2 * value for value in x]

    module = pybuda.TFModule("m", Model())
    with pytest.raises(PyBudaError, match=r"forward\(\) first"):
        module.backward()
    assert module.forward(torch.tensor([1.0, 2.0])) == module.call([1.0, 2.0]) == [2.0, 4.0]
    module.backward(("out", "loss"))
    assert module.gradients == [("v", "out", "loss")]
    with pytest.raises(PyBudaError, match="TensorFlow module 'm' runs on CPU devices only"):
        pybuda.TTDevice("tt0", module=module)


def test_modules_of_other_frameworks_say_what_to_do() -> None:
    with pytest.raises(PyBudaError, match=r"takes an onnx\.ModelProto, or the path"):
        pybuda.OnnxModule("o", None, None)  # type: ignore[arg-type]
    for name in parity.DECLINED:
        assert not hasattr(pybuda, name.split(".")[1]), name


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_a_gpu_device_needs_a_gpu() -> None:
    with pytest.raises(PyBudaError, match="PyTorch sees no GPU"):
        pybuda.GPUDevice("gpu0")


def test_small_names() -> None:
    assert isinstance(_get_global_compiler_config(), pybuda.CompilerConfig)
    assert [level.name for level in pybuda.PerfTraceLevel] == ["NONE", "LIGHT", "VERBOSE"]
    pybuda.insert_buffering_nop("a", "b")
    pybuda.override_dram_queue_placement("q", chip_id=1, channel=2)
    config = _get_global_compiler_config()
    assert config.buffering_nops_to_insert[0]["names"] == ["buffer_0_a_b"]
    assert config.dram_queue_placements == {"q": {"chip_id": 1, "channel": 2}}
    assert pybuda.k_dim == -1
    assert getattr(module, "OnnxModule") is pybuda.OnnxModule  # noqa: B009 (mypy knows no such name)
    with pytest.raises(AttributeError, match="NoModule"):
        getattr(module, "NoModule")  # noqa: B009
    shape = pybuda.Tensor.create_from_torch(torch.ones(2, 3)).shape
    assert isinstance(shape, pybuda.TensorShape)
    assert torch.Tensor in getattr(pybuda.SomeTensor, "__args__", ())
    sgd = pybuda.SGD(0.5, device_params=True)
    assert pybuda.TTDevice("tt0", optimizer=sgd).get_optimizer() is sgd


def test_a_torch_scheduler_takes_its_rate_from_get_lr() -> None:
    class Falling(pybuda.torch_schedulers.TorchLearningRateScheduler):
        def get_lr(self) -> list[float]:
            return [1.0 / (1 + self.last_epoch)]

    optimizer = torch.optim.SGD([nn.Parameter(torch.ones(1))], lr=1.0)
    scheduler = Falling(optimizer)
    optimizer.step()
    scheduler.step()
    assert optimizer.param_groups[0]["lr"] == 0.5
