"""The functions of torch.rbln, and the device in PyTorch's own functions, as the vendor's users call them."""

from __future__ import annotations

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_sequence
from torch.utils.data import DataLoader, TensorDataset

from tests.rbln.vendor import only_under_the_name

only_under_the_name(eager=False)

rbln = torch.rbln
HALF = torch.float16


@pytest.fixture(autouse=True)
def first_device() -> None:
    rbln.set_device(0)


@pytest.mark.seed(0, "module/1", "is_available/1", "current_device/1", "device_count/1", "set_device/1")
def test_devices() -> None:
    assert torch.get_device_module("rbln") is rbln
    assert rbln.is_available() is True
    assert rbln.device_count() == torch.accelerator.device_count() == 2
    assert rbln.current_device() == 0
    for device in (1, "rbln:1", torch.device("rbln:1")):
        rbln.set_device(0)
        rbln.set_device(device)
        assert rbln.current_device() == torch.accelerator.current_device_index() == 1
        assert torch.empty(1, device="rbln").device == torch.device("rbln:1")
    rbln.set_device(-1)
    assert rbln.current_device() == 1
    for wrong, message in ((2, "Invalid device index 2"), ("rbln:300", "index 300"), (128, "index 128")):
        with pytest.raises(RuntimeError, match=message):
            rbln.set_device(wrong)
    for no_device in ("cpu", True, 1.0, torch.device("cpu")):
        with pytest.raises(ValueError, match="Expected a rbln device"):
            rbln.set_device(no_device)
    assert rbln.current_device() == 1


@pytest.mark.seed(0, "device_of/1", "device_of/2", "device_of/3")
def test_device_of() -> None:
    there = torch.ones(2, device="rbln:1")
    for thing in (there, there.untyped_storage(), there._typed_storage()):
        with rbln.device_of(thing):
            assert rbln.current_device() == 1
        assert rbln.current_device() == 0
    here = torch.ones(2)
    rbln.set_device(1)
    for thing in (here, here.untyped_storage(), here._typed_storage()):
        with rbln.device_of(thing):
            assert rbln.current_device() == 1
    with pytest.raises(TypeError):
        rbln.device_of("rbln:1")
    with rbln.device(0):
        assert rbln.current_device() == 0
    assert rbln.current_device() == 1


@pytest.mark.seed(0, "native/1")
def test_pytorchs_functions_work_as_they_are() -> None:
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 2)).half()
    x = torch.randn(4, 8, dtype=HALF)
    expected = model(x)
    result = model.to("rbln")(x.to("rbln"))
    assert torch.equal(result.cpu(), expected)
    result.sum().backward()
    assert all(p.grad is not None and p.grad.is_rbln for p in model.parameters())


def test_generated_methods() -> None:
    x = torch.arange(3.0)
    moved = x.rbln(1)
    assert (moved.is_rbln, x.is_rbln, moved.device) == (True, False, torch.device("rbln:1"))
    assert x.rbln().device == torch.device("rbln:0")
    assert torch.equal(moved.cpu(), x)
    module = nn.Linear(2, 2)
    assert module.rbln() is module
    assert module.weight.is_rbln
    storage = x.untyped_storage().rbln()
    assert (storage.is_rbln, x.untyped_storage().is_rbln) == (True, False)
    assert bytes(storage.cpu()) == bytes(x.untyped_storage())
    assert x._typed_storage().rbln().is_rbln
    packed = pack_sequence([torch.ones(3), torch.ones(2)])
    moved_packed = packed.rbln()
    assert (moved_packed.is_rbln, packed.is_rbln) == (True, False)
    assert torch.equal(moved_packed.data.cpu(), packed.data)


def test_a_tensor_prints_its_device() -> None:
    x = torch.tensor([1.5, 2.5], dtype=HALF, device="rbln")
    assert repr(x) == "tensor([1.5000, 2.5000], device='rbln:0', dtype=torch.float16)"
    assert str(torch.device("rbln", 1)) == "rbln:1"
    assert x.type() == "torch.rbln.HalfTensor"


def test_autocast() -> None:
    x, y = torch.randn(4, 4, device="rbln"), torch.randn(4, 4, device="rbln")
    with torch.autocast("rbln", dtype=HALF):
        assert torch.is_autocast_enabled("rbln")
        assert (x @ y).dtype == HALF
        assert torch.exp(x.half()).dtype == torch.float32
    with torch.autocast("rbln"):
        assert (x @ y).dtype == HALF
    assert (x @ y).dtype == torch.float32
    with pytest.warns(UserWarning, match="target dtype is not supported"):
        context = torch.autocast("rbln", dtype=torch.bfloat16)
    with context:
        assert (x @ y).dtype == torch.float32


def test_generators() -> None:
    generator = torch.Generator("rbln").manual_seed(3)
    assert generator.device == torch.device("rbln:0")
    state = generator.get_state()
    first = torch.randn(5, device="rbln", generator=generator)
    generator.set_state(state)
    assert torch.equal(torch.randn(5, device="rbln", generator=generator), first)
    rbln.manual_seed(3)
    assert torch.equal(torch.randn(5, device="rbln"), first)
    assert rbln.initial_seed() == 3


def test_pinned_batches() -> None:
    data = TensorDataset(torch.arange(8.0).reshape(4, 2))
    loader = DataLoader(data, batch_size=2, pin_memory=True, pin_memory_device="rbln")
    with pytest.warns(UserWarning, match="pin_memory_device"):
        batches = list(loader)
    assert all(batch.is_pinned() for (batch,) in batches)
    moved = [batch.to("rbln", non_blocking=True) for (batch,) in batches]
    assert torch.equal(torch.cat(moved).cpu(), data.tensors[0])


def test_mixed_devices_are_refused() -> None:
    with pytest.raises(RuntimeError, match="at least two devices, rbln:0 and cpu"):
        torch.ones(2, device="rbln") + torch.ones(2)


def test_a_tensor_over_an_address() -> None:
    x = torch.arange(12, dtype=HALF, device="rbln:1")
    y = rbln._create_tensor_from_ptr(x.data_ptr(), (3, 4), HALF)
    assert y.device == x.device
    y.mul_(2)
    assert x.tolist() == [2.0 * i for i in range(12)]
    assert rbln._create_tensor_from_ptr(x[4:].data_ptr(), [2], HALF).tolist() == [8.0, 10.0]
    assert rbln._create_tensor_from_ptr(0, (0, 3), HALF).shape == (0, 3)
    host = torch.ones(4)
    for address, shape in ((host.data_ptr(), (4,)), (x.data_ptr(), (1 << 20,)), (0, (1,)), (-8, (1,))):
        with pytest.raises(ValueError, match="do not lie in one allocated block"):
            rbln._create_tensor_from_ptr(address, shape, HALF)
    with pytest.raises(TypeError):
        rbln._create_tensor_from_ptr("0", (1,), HALF)


@pytest.mark.parametrize("shape", [(5,), (2, 3, 5), (0, 5)])
def test_linear_backward(shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x, grad, weight = torch.randn(shape), torch.randn(*shape[:-1], 4), torch.randn(4, 5)
    leaves = [x.requires_grad_(), weight.requires_grad_(), torch.zeros(4, requires_grad=True)]
    wanted = torch.autograd.grad(nn.functional.linear(*leaves), leaves, grad)
    args = [tensor.detach().to("rbln") for tensor in (x, grad, weight)]
    found = torch.ops.aten.linear_backward(*args, [True, True, True])
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.cpu(), other)
    assert torch.ops.aten.linear_backward(*args, [False, True, False])[0] is None
    with pytest.raises(RuntimeError, match="do not fit a weight"):
        torch.ops.aten.linear_backward(args[0], args[1], args[2].T, [True, True, True])
