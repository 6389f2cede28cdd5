"""Devices: which there are, which is current, what each is."""

from __future__ import annotations

import platform
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import torch

import torch_loom.device as loom
from tests.conftest import PythonRunner
from torch_loom import _C, config
from torch_loom.errors import DeviceTypeError, InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "devices"

if TYPE_CHECKING:
    from tests.gate import Gate


@pytest.fixture(autouse=True)
def first_device() -> Iterator[None]:
    loom.set_device(0)
    yield
    loom.set_device(0)


def test_module_is_registered() -> None:
    assert torch.get_device_module("loom") is loom
    assert torch.accelerator.current_accelerator() == torch.device("loom")
    for name in loom.__all__:
        assert getattr(loom, name).__doc__ or name == "default_generators", name


def test_count_and_availability() -> None:
    assert loom.device_count() == torch.accelerator.device_count() == len(config.resolve().physical_devices)
    assert loom.is_available()
    assert torch.accelerator.is_available()
    assert loom.is_initialized()
    assert not loom._is_in_bad_fork()
    loom.init()


@pytest.mark.parametrize("which", [1, "loom:1", torch.device("loom", 1)])
def test_set_device(which: int | str | torch.device) -> None:
    loom.set_device(which)
    assert loom.current_device() == torch.accelerator.current_device_index() == 1
    assert torch.empty(1, device="loom").device == torch.device("loom:1")
    assert torch.ones(1).loom().device.index == 1


@pytest.mark.exercises(
    "torch.cuda.set_device",
    "torch.cuda.device",
    "torch.cuda.get_device_name",
    "torch.cuda.get_device_capability",
    "torch.cuda._exchange_device",
    "torch.cuda._maybe_exchange_device",
)
def test_negative_device_does_nothing() -> None:
    loom.set_device(1)
    loom.set_device(-1)
    assert loom.current_device() == 1
    with loom.device(-1):
        assert loom.current_device() == 1
    assert loom._exchange_device(-1) == -1
    assert loom._maybe_exchange_device(-1) == -1
    assert loom.get_device_name(-1) is None
    assert loom.get_device_capability(-1) is None
    assert loom.get_device_name() == loom.get_device_name(1) == "loom1"
    assert loom.get_device_capability() == loom.get_device_capability("loom:0") == (1, 0)


@pytest.mark.exercises("torch.cuda.device")
def test_no_device_does_nothing() -> None:
    with loom.device(None):
        loom.set_device(1)
    assert loom.current_device() == 1


def test_exchange_device() -> None:
    assert loom._exchange_device(1) == 0
    assert loom._maybe_exchange_device(0) == 1
    with loom._DeviceGuard(1):
        assert loom.current_device() == 1
    assert loom.current_device() == 0


def test_device_context_restores_also_after_an_error() -> None:
    with loom.device("loom:1"):
        assert loom.current_device() == 1
        with loom.device(None):
            assert loom.current_device() == 1
        with pytest.raises(KeyError), loom.device(0):
            raise KeyError
        assert loom.current_device() == 1
    assert loom.current_device() == 0
    with torch.device("loom:1"):
        assert torch.empty(1).device.index == 1


@pytest.mark.exercises("torch.cuda.device_of")
def test_device_of() -> None:
    here = torch.ones(2, device="loom:1")
    for obj in (here, here.untyped_storage(), here.storage(), here[1:], torch.nn.Parameter(here)):
        with loom.device_of(obj):
            assert loom.current_device() == 1
        assert loom.current_device() == 0
    loom.set_device(1)
    host, meta = torch.ones(2), torch.ones(2, device="meta")
    for obj in (host, meta, host.untyped_storage(), host.storage()):
        with loom.device_of(obj):
            assert loom.current_device() == 1
    for bad in (loom.Stream(), 0, None, "loom:1", torch.device("loom:1")):
        with pytest.raises(TypeError, match="Expected a tensor or a storage"):
            loom.device_of(bad)


def test_current_device_belongs_to_the_thread() -> None:
    loom.set_device(1)
    seen: list[int] = []

    def work() -> None:
        seen.append(loom.current_device())
        loom.set_device(0)
        seen.append(loom.current_device())

    thread = threading.Thread(target=work)
    thread.start()
    thread.join()
    assert seen == [0, 0]
    assert loom.current_device() == 1


@pytest.mark.exercises("torch.cuda._get_device_index")
def test_get_device_index() -> None:
    get = loom._utils._get_device_index
    assert get(5) == 5
    assert get("loom:1") == get(torch.device("loom:1")) == get(loom.device(1)) == 1
    assert get("loom", optional=True) == get(None, optional=True) == 0
    assert get("cpu", allow_cpu=True) == -1
    for bad in ("loom", None, "cpu", "cuda:0", torch.device("meta"), 1.0, True, [0]):
        with pytest.raises(DeviceTypeError, match="Expected a loom device"):
            get(bad)


@pytest.mark.exercises(
    "torch.cuda.get_device_properties", "torch.cuda.get_device_name", "torch.cuda.get_device_capability"
)
def test_properties() -> None:
    properties = loom.get_device_properties("loom:1")
    assert properties.name == loom.get_device_name(1)
    assert properties.name == _C.chip().name
    assert properties.total_memory == loom.mem_get_info(1)[1]
    assert properties.total_memory == (config.resolve().memory_bytes or _C.chip().memory_bytes)
    assert (properties.driver, properties.engine) == ("virtual", "cpu")
    assert loom.get_device_capability() == (properties.major, properties.minor) == (1, 0)
    assert properties.multi_processor_count == _C.chip().num_cores
    assert properties == loom.get_device_properties(loom.device(1))  # type: ignore[arg-type]
    assert properties.uuid != loom.get_device_properties(0).uuid
    assert (properties.pci_domain_id, properties.pci_bus_id, properties.pci_device_id) == (0, 2, 0)
    with pytest.raises(AttributeError):
        properties.name = "other"  # type: ignore[misc]


@pytest.mark.exercises(
    "torch.cuda.get_device_properties",
    "torch.cuda.get_device_capability",
    "torch.cuda.get_arch_list",
    "torch.cuda.is_tf32_supported",
)
def test_properties_of_an_h200(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "properties_of_an_h200.py", {"TORCH_LOOM_CHIP": "h200"})


@pytest.mark.exercises(
    "torch.cuda.get_arch_list", "torch.cuda._device_count_nvml", "torch.cuda.is_tf32_supported"
)
def test_what_there_is_without_devices(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "what_there_is_without_devices.py", {"TORCH_LOOM_DEVICES": "0"})


@pytest.mark.exercises(
    "torch.cuda.get_arch_list",
    "torch.cuda.is_tf32_supported",
    "torch.cuda._device_count_nvml",
    "torch.cuda._host_arch_key",
    "torch.cuda.has_half",
    "torch.cuda.has_magma",
)
def test_what_the_devices_can_do() -> None:
    assert loom.get_arch_list() == ["loom1"]
    assert not loom.is_tf32_supported()
    assert loom._device_count_nvml() == loom.device_count()
    assert loom._host_arch_key() in ("x86_64", "aarch64")
    assert loom._host_arch_key()[-2:] == platform.machine()[-2:]
    assert loom.has_half
    assert (torch.ones(3, device="loom", dtype=torch.half) * 2).tolist() == [2, 2, 2]
    assert loom.has_magma
    matrix = torch.tensor([[2.0, 0.0], [0.0, 4.0]], device="loom")
    assert torch.linalg.inv(matrix).tolist() == [[0.5, 0.0], [0.0, 0.25]]


@pytest.mark.exercises("torch.cuda.can_device_access_peer")
def test_peer_access() -> None:
    assert loom.can_device_access_peer(0, 1) is loom.can_device_access_peer("loom:1", "loom:0") is True
    assert loom.can_device_access_peer(0, 0) is False
    with pytest.raises(InvalidDeviceError, match="Invalid device index -1"):
        loom.can_device_access_peer(0, -1)


@pytest.mark.parametrize("device", [None, 0, "loom:0", torch.device("loom", 0)])
def test_synchronize_waits_for_the_device_that_is_meant(gate: Gate, device: Any) -> None:
    here, there = loom.Stream(0), loom.Stream(1)
    gate.hold(there)
    with here:
        x = torch.ones(1 << 20, device="loom")
        for _ in range(20):
            x = x * 2
    loom.synchronize(device)  # does not wait for the other device, which is held
    assert here.query()
    assert not there.query()
    gate.open()
    loom.synchronize("loom:1")
    assert there.query()


@pytest.mark.exercises("torch.cuda.is_bf16_supported", "torch.cuda.amp.autocast")
def test_reduced_precision() -> None:
    assert loom.get_amp_supported_dtype() == [torch.float16, torch.bfloat16]
    assert loom.is_bf16_supported()
    with loom.amp.autocast(dtype=torch.bfloat16):
        assert torch.is_autocast_enabled("loom")
        assert torch.get_autocast_dtype("loom") == torch.bfloat16
    assert not torch.is_autocast_enabled("loom")
    scaler = loom.amp.GradScaler(init_scale=8.0)
    assert scaler.scale(torch.ones(1, device="loom")).item() == 8


@pytest.mark.parametrize(
    "use",
    [
        loom.set_device,
        loom.synchronize,
        loom.get_device_name,
        loom.get_device_properties,
        loom.get_device_capability,
        lambda index: loom.can_device_access_peer(0, index),
        lambda index: loom.device(index).__enter__(),
        loom._exchange_device,
        loom._maybe_exchange_device,
    ],
)
def test_a_device_that_is_not_there(use: object) -> None:
    assert callable(use)
    count = loom.device_count()
    with pytest.raises(
        InvalidDeviceError, match=rf"Invalid device index 7: there are {count} loom devices \(0…"
    ):
        use(7)


def test_streams() -> None:
    assert loom.current_stream() == loom.default_stream() == torch.accelerator.current_stream()
    assert loom.default_stream(1).device == torch.device("loom:1")
    assert loom.default_stream(1) != loom.default_stream(0)
    stream = loom.Stream(device="loom:1")
    with loom.stream(stream) as entered:
        assert entered is None
        assert loom.current_device() == 1
        assert loom.current_stream() == stream
    assert loom.current_device() == 0
    assert loom.current_stream(1) == loom.default_stream(1)
    with loom.stream(None):
        assert loom.current_stream() == loom.default_stream()
    loom.set_stream(stream)
    assert loom.current_stream(1) == stream
    assert loom.current_device() == 1
    loom.set_stream(loom.default_stream(1))
    loom.set_stream(None)
    with pytest.raises(TypeError, match=r"Expected a torch.Stream, but got 3 \(int\)"):
        loom.set_stream(3)  # type: ignore[arg-type]
    with pytest.raises(TypeError, match=r"Expected a torch.Stream, but got 'x' \(str\)"):
        loom.stream("x")  # type: ignore[arg-type]


def test_exchanging_for_a_negative_device_changes_nothing():
    before = torch.loom.current_device()
    torch._C._accelerator_maybeExchangeDevice(-1)
    assert torch.loom.current_device() == before
    assert torch.ones(1, device="loom").item() == 1
