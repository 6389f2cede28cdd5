"""What runs share: errors, queues, placement rules, device modes, values that are kept."""

from __future__ import annotations

import threading
from typing import Any

import pytest
import torch
from torch import nn

from tests.pybuda.checks import SECONDS, assert_same, read
from tests.pybuda.models import SIZE, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import CompilerOptionError, PyBudaError, QueueFullError, StageError
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType, DeviceMode


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


def test_a_wrong_shape_names_the_device_also_where_it_is_compiled() -> None:
    module = pybuda.PyTorchModule("m", nn.Linear(64, 8))
    tt0 = pybuda.TTDevice("tt0", module=module, arch=pybuda.BackendDevice.Wormhole_B0)
    tt0.push_to_inputs(torch.ones(4, 63))
    results = pybuda.run_inference()
    with pytest.raises(RuntimeError, match="stage 'tt0' failed") as caught:
        results.get(timeout=60)
    assert isinstance(caught.value, StageError)
    assert "4x63 and 64x8" in str(caught.value.__cause__)
    pybuda.shutdown()


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
    with pytest.raises(PyBudaError, match="takes modules of PyBuda, not Linear"):
        tt0.place_module(nn.Linear(1, 1))  # type: ignore[arg-type]
    with pytest.raises(PyBudaError, match="cannot run on CPU device"):
        cpu0.place_module(Projection("m"))
    tt0.place_module(Projection("m"))
    with pytest.raises(RuntimeError, match="'m' is placed already"):
        tt0.place_module(Projection("m"))
    tt0.push_to_inputs(torch.rand(1, SIZE))
    twin = pybuda.TTDevice("twin", module=Projection("m"))
    with pytest.raises(PyBudaError, match="two modules of a pipeline are called 'm'"):
        pybuda.run_inference()
    twin.remove_modules()
    other = pybuda.TTDevice("tt0", module=Projection("n"))
    with pytest.raises(PyBudaError, match="two devices of a pipeline are called 'tt0'"):
        pybuda.run_inference()
    other.remove_modules()
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


def test_tapouts_keep_an_ops_values() -> None:
    module = Echo("m")
    handle = module.insert_tapout_queue_for_op("tail", 0)
    tt0 = pybuda.TTDevice("tt0", module=module)
    given = inputs()
    tt0.push_to_inputs(given)
    read(pybuda.run_inference())
    assert_same(tt0.get_tapout_values(handle), [given[1] @ module.delayed.value()])
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
    assert_same(saved, [given[1] @ module.delayed.value(), given[0] @ module.direct.value()])


def test_op_intermediates_of_a_later_device() -> None:
    """They come one a micro-batch, however far the devices before are."""
    pybuda.set_configuration_options(op_intermediates_to_save=["project"])
    first, second = _Twice("first"), Projection("second")
    tt0 = pybuda.TTDevice("tt0", module=first)
    pybuda.CPUDevice("cpu0", module=pybuda.PyTorchModule("one", _Product(first.has_run_twice)))
    pybuda.TTDevice("tt1", module=second)
    given = [inputs() for _ in range(8)]
    for one in given:
        tt0.push_to_inputs(one)
    results = pybuda.run_inference(input_count=len(given))
    saved = pybuda.get_intermediates_queue()
    for one in given:
        dry, wet = first.reference(*one)
        expected = dry * wet @ second.basis.value()
        assert_same(read(saved), [expected])
        assert_same(read(results), [expected])


class _Twice(Echo):
    """Says when it runs for the second time."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.runs, self.has_run_twice = 0, threading.Event()

    def forward(self, dry: Any, wet: Any) -> Any:
        self.runs += 1
        if self.runs > 2:
            self.has_run_twice.set()
        return super().forward(dry, wet)


class _Product(nn.Module):
    def __init__(self, may_run: threading.Event) -> None:
        super().__init__()
        self._may_run = may_run

    def forward(self, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
        assert self._may_run.wait(SECONDS)
        return x * y


def test_a_bad_setting_is_an_error_of_the_run_and_leaves_no_worker() -> None:
    pybuda.set_configuration_options(backend_device_descriptor_path="/no/such/file.yaml")
    x, module = torch.rand(2, SIZE), pybuda.PyTorchModule("m", nn.Linear(SIZE, SIZE))
    tt0 = pybuda.TTDevice("tt0", module=module, arch=BackendDevice.Wormhole_B0)
    tt0.push_to_inputs(x)
    before = set(threading.enumerate())
    with pytest.raises(CompilerOptionError, match="no/such/file"):
        pybuda.run_inference()
    assert set(threading.enumerate()) <= before
    pybuda.set_configuration_options(backend_device_descriptor_path="")
    assert read(pybuda.run_inference())[0].shape == (2, SIZE)


def test_detect_available_devices_lists_the_virtual_chips() -> None:
    assert pybuda.detect_available_devices() == ["loom1", "loom1"]
    assert not pybuda.is_silicon()
