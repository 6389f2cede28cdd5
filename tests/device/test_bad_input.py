"""Bad input is a typed error that names the argument and the value, and the device goes on working."""

from __future__ import annotations

import io
from collections.abc import Iterator

import pytest
import torch

import torch_loom.device as loom
from torch_loom import config
from torch_loom.errors import ConfigurationError, DeviceTypeError


@pytest.fixture(autouse=True)
def goes_on() -> Iterator[None]:
    yield
    assert loom.current_device() == 0
    assert (torch.arange(3, device="loom") + 1).tolist() == [1, 2, 3]


@pytest.mark.parametrize("device", ["loom:7", torch.device("loom", 7)])
def test_wrong_device_index(device: str | torch.device) -> None:
    for use in (
        lambda: torch.ones(2, device=device),
        lambda: torch.empty(0, device=device),
        lambda: torch.ones(2).to(device),
        lambda: torch.ones(2, device="loom").to(device),
        lambda: torch.UntypedStorage(8, device=device),
        lambda: torch.Generator(device),
        lambda: torch.Stream(device=device),
        lambda: torch.accelerator.set_device_index(7),
        lambda: torch.accelerator.synchronize(7),
    ):
        with pytest.raises(RuntimeError, match=r"\b7\b"):
            use()


def test_devices_of_other_kinds() -> None:
    for bad in ("cuda:0", "cpu", torch.device("meta")):
        with pytest.raises(DeviceTypeError, match=f"Expected a loom device, but got: {bad}"):
            loom.set_device(bad)
    for bad in (1.5, [0], object, True):
        with pytest.raises(DeviceTypeError, match="Expected a loom device, an index or None, but got"):
            loom.set_device(bad)  # type: ignore[arg-type]
    with pytest.raises(RuntimeError, match="loom:x"):
        loom.set_device("loom:x")
    for bad in (3, None, "loom"):
        with pytest.raises(TypeError, match="Expected a tensor or a storage, but got"):
            loom.device_of(bad)


@pytest.mark.parametrize(
    "op",
    [
        lambda a, b: a + b,
        lambda a, b: a.add_(b),
        lambda a, b: torch.mm(a, b),
        lambda a, b: torch.cat([a, b]),
        lambda a, b: torch.where(a > 0, a, b),
        lambda a, b: torch.nn.functional.linear(a, b),
        lambda a, b: torch.add(a, a, out=b),
        lambda a, b: torch.nn.functional.layer_norm(a, (2,), b[0]),
    ],
)
@pytest.mark.parametrize("other", ["cpu", "loom:1"])
def test_mixed_devices(op: object, other: str) -> None:
    assert callable(op)
    a, b = torch.ones(2, 2, device="loom:0"), torch.ones(2, 2, device=other)
    with pytest.raises(RuntimeError) as raised:
        op(a, b)
    message = str(raised.value)
    assert "be on the same device" in message
    assert "loom:0" in message
    assert other in message


def test_mixed_devices_names_the_argument_as_cuda_does() -> None:
    with pytest.raises(
        RuntimeError,
        match="all tensors to be on the same device, but found at least two devices, loom:0 and cpu!",
    ):
        torch.ones(2, device="loom") + torch.ones(2)


def test_indices_on_another_device() -> None:
    with pytest.raises(RuntimeError, match="on the same device"):
        torch.ones(2, device="loom:0")[torch.tensor([1], device="loom:1")]
    assert torch.ones(2, device="loom")[torch.tensor([1])].tolist() == [1]


def test_a_cpu_scalar_may_be_mixed_in() -> None:
    assert (torch.ones(2, device="loom") + torch.tensor(1.0)).tolist() == [2, 2]


@pytest.mark.parametrize("source", ["cpu", "loom:1"])
def test_storage_from_another_device(source: str) -> None:
    tensor = torch.ones(2, device="loom:0")
    other = torch.zeros(4, device=source)
    with pytest.raises(RuntimeError, match=source):
        tensor.set_(other.untyped_storage(), 0, (4,), (1,))
    with pytest.raises(RuntimeError, match=source):
        tensor.set_(other)
    with pytest.raises(RuntimeError, match="loom:0"):
        torch.zeros(2).set_(tensor.untyped_storage(), 0, (2,), (1,))
    assert tensor.tolist() == [1, 1]


def test_storage_out_of_bounds() -> None:
    tensor = torch.ones(2, device="loom")
    with pytest.raises(RuntimeError, match="bounds"):
        tensor.as_strided((100,), (1,))
    with pytest.raises(RuntimeError, match="offset -1"):
        tensor.set_(tensor.untyped_storage(), -1, (2,), (1,))


def saved(value: object) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


def test_corrupted_checkpoint() -> None:
    whole = saved({"weight": torch.arange(1000.0, device="loom:1")})
    assert torch.load(io.BytesIO(whole))["weight"].device == torch.device("loom:1")
    for broken in (whole[: len(whole) // 2], whole[:-100], b""):
        with pytest.raises((RuntimeError, EOFError, ValueError)):
            torch.load(io.BytesIO(broken))


def test_checkpoint_of_a_device_that_is_not_here() -> None:
    file = io.BytesIO()
    torch.save(torch.ones(2, device="loom:1"), file, _use_new_zipfile_serialization=False)
    whole = file.getvalue()
    assert whole.count(b"loom:1") == 1
    with pytest.raises(RuntimeError, match=r"LOOM device 7 but torch.loom.device_count\(\) is 2"):
        torch.load(io.BytesIO(whole.replace(b"loom:1", b"loom:7")))
    with pytest.raises(RuntimeError, match="loom:x"):
        torch.load(io.BytesIO(whole.replace(b"loom:1", b"loom:x")))
    moved = torch.load(io.BytesIO(whole.replace(b"loom:1", b"loom:7")), map_location="loom:0")
    assert moved.tolist() == [1, 1]


def test_generator_of_another_device() -> None:
    for generator in (torch.Generator("cpu"), torch.Generator("loom:1")):
        with pytest.raises(RuntimeError, match=r"[Gg]enerator"):
            torch.rand(2, device="loom:0", generator=generator)
    with pytest.raises(RuntimeError, match=r"[Gg]enerator|same device"):
        torch.rand(2, generator=torch.Generator("loom"))


def test_numpy_is_refused() -> None:
    with pytest.raises(TypeError, match="can't convert loom:0 device type tensor to numpy"):
        torch.ones(2, device="loom").numpy()


def test_unknown_environment_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DRIVER", "gpu")
    with pytest.raises(ConfigurationError, match=r"TORCH_LOOM_DRIVER='gpu': .*Allowed: virtual, null"):
        config.resolve()
