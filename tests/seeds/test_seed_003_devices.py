"""Seed 003: the device functions. Keys as in seed_003.txt."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom.device as loom
from torch_loom.errors import InvalidDeviceError

PROGRAMS = Path(__file__).parent / "programs" / "seed_003_devices"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner
    from tests.gate import Gate


@pytest.fixture(autouse=True)
def on_device_0() -> Iterator[None]:
    loom.set_device(0)
    yield
    loom.set_device(0)


@pytest.mark.seed(3, "package/1")
def test_device_tensors_have_the_functions_of_cpu_tensors() -> None:
    x = torch.linspace(-2, 2, 12).reshape(3, 4)
    for function in (lambda t: t.softmax(1), lambda t: t @ t.T, lambda t: t.sort(1).values.cumsum(0)):
        on_device = function(x.to("loom"))
        assert on_device.device == torch.device("loom:0")
        assert torch.equal(on_device.cpu(), function(x))


@pytest.mark.long
@pytest.mark.seed(2, "is_available", "is_initialized", "init", "device_count", "set_device")
@pytest.mark.seed(3, "package/2", "init/1", "init/2", "init/3", "get_rng_state/3", "set_device/3")
@pytest.mark.exercises(
    "torch.cuda._lazy_init",
    "torch.cuda.init",
    "torch.cuda.is_initialized",
    "torch.cuda.is_available",
    "torch.cuda.device_count",
)
def test_first_use(fork_python: PythonRunner) -> None:
    fork_python(
        PROGRAMS / "first_use.py",
        {"TORCH_LOOM_DEVICES": "3", "TORCH_LOOM_VISIBLE_DEVICES": "2", "TORCH_LOOM_MEMORY": "32MiB"},
    )
    fork_python(PROGRAMS / "first_use_2.py")


@pytest.mark.seed(2, "can_device_access_peer")
@pytest.mark.seed(3, "can_device_access_peer/1")
@pytest.mark.exercises("torch.cuda.can_device_access_peer")
def test_peers() -> None:
    assert loom.can_device_access_peer(0, 1) is True
    assert loom.can_device_access_peer("loom:1", torch.device("loom:0")) is True
    with pytest.raises(InvalidDeviceError, match="2"):
        loom.can_device_access_peer(0, 2)


@pytest.mark.seed(2, "device", "current_device")
@pytest.mark.seed(3, "device/1", "device/2")
@pytest.mark.exercises("torch.cuda.device", "torch.cuda.current_device", "torch.cuda._DeviceGuard")
def test_device_as_context() -> None:
    for other in (1, "loom:1", torch.device("loom:1")):
        with loom.device(other):
            assert loom.current_device() == torch.empty(1, device="loom").get_device() == 1
            for nothing in (-1, -7, None):
                with loom.device(nothing):
                    assert loom.current_device() == 1
        assert loom.current_device() == 0
    with loom._DeviceGuard(1):
        assert loom.current_device() == 1
    assert loom.current_device() == 0


@pytest.mark.seed(2, "device_of")
@pytest.mark.seed(3, "device_of/1", "device_of/2", "device_of/3")
@pytest.mark.exercises("torch.cuda.device_of")
def test_device_of() -> None:
    there = torch.ones(2, device="loom:1")
    for obj in (there, there.untyped_storage(), torch.nn.Parameter(there)):
        with loom.device_of(obj):
            assert loom.current_device() == 1
            with loom.device_of(torch.ones(1)), loom.device_of(torch.UntypedStorage(4)):
                assert loom.current_device() == 1
        assert loom.current_device() == 0


@pytest.mark.seed(2, "set_device")
@pytest.mark.seed(3, "set_device/1", "set_device/2")
@pytest.mark.exercises("torch.cuda.set_device")
def test_set_device() -> None:
    for device, expected in ((1, 1), (-1, 1), (-3, 1), ("loom:0", 0), (torch.device("loom:1"), 1)):
        loom.set_device(device)
        assert loom.current_device() == expected


@pytest.mark.seed(2, "get_device_name", "get_device_capability", "get_device_properties")
@pytest.mark.seed(3, "get_device_capability/1", "get_device_capability/3", "get_device_name/1")
@pytest.mark.seed(3, "get_device_name/3", "get_device_properties/1")
@pytest.mark.exercises(
    "torch.cuda.get_device_capability", "torch.cuda.get_device_name", "torch.cuda.get_device_properties"
)
def test_what_a_device_is() -> None:
    for device in (1, "loom:1", torch.device("loom", 1)):
        properties = loom.get_device_properties(device)
        assert (properties.name, properties.total_memory) == ("loom1", loom.mem_get_info(device)[1])
        assert loom.get_device_name(device) == properties.name
        assert loom.get_device_capability(device) == (properties.major, properties.minor)
    assert loom.get_device_name() == loom.get_device_name(None) == loom.get_device_name(0)
    assert loom.get_device_capability() == loom.get_device_capability(None) == (1, 0)
    with pytest.raises(InvalidDeviceError, match="9"):
        loom.get_device_properties(9)


@pytest.mark.seed(3, "get_device_capability/2", "get_device_name/2")
def test_negative_devices_do_nothing() -> None:
    with loom.device(1):
        for ask in (loom.get_device_name, loom.get_device_capability):
            assert ask(-1) is None  # nothing is asked, so there is no answer
            assert ask(None) is not None
        assert loom.current_device() == 1


@pytest.mark.seed(2, "synchronize")
@pytest.mark.seed(3, "synchronize/1", "synchronize/2")
@pytest.mark.exercises("torch.cuda.synchronize")
def test_synchronize_waits_for_all_streams(gate: Gate) -> None:
    first, second = loom.Stream(), loom.Stream()
    done: list[torch.Event] = []
    gate.hold(first)
    for stream in (first, second):
        second.wait_stream(first)
        done.append(stream.record_event())
    assert not any(event.query() for event in done)
    loom.synchronize(1)  # another device's streams are not waited for: this returns
    with loom.device(1):
        loom.synchronize()
    assert not any(event.query() for event in done)
    gate.open()
    loom.synchronize()
    assert all(event.query() for event in done)
    assert first.query()
    assert second.query()


@pytest.mark.seed(2, "get_arch_list", "get_sync_debug_mode", "set_sync_debug_mode")
@pytest.mark.exercises("torch.cuda.get_sync_debug_mode", "torch.cuda.set_sync_debug_mode")
def test_sync_debug_mode_and_what_kernels_were_made_for() -> None:
    assert loom.get_sync_debug_mode() == 0
    x = torch.ones(2, device="loom")
    try:
        loom.set_sync_debug_mode("error")
        assert loom.get_sync_debug_mode() == 2
        with pytest.raises(RuntimeError, match="synchroniz"):
            x.sum().item()
        loom.set_sync_debug_mode("warn")
        assert loom.get_sync_debug_mode() == 1
        with pytest.warns(UserWarning, match="synchroniz"):
            assert x.sum().item() == 2
    finally:
        loom.set_sync_debug_mode(0)
    assert loom.get_arch_list() == [loom.get_device_name()]
