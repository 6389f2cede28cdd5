"""Gradients are the CPU's; modules keep their Parameters when they move."""

from __future__ import annotations

import copy
import threading

import pytest
import torch
from torch import Tensor, nn
from torch.utils.checkpoint import checkpoint


def gradients(module: nn.Module, *inputs: Tensor) -> list[Tensor]:
    inputs = tuple(x.detach().requires_grad_() for x in inputs)
    module(*inputs).square().sum().backward()
    grads = [x.grad for x in (*inputs, *module.parameters())]
    assert all(grad is not None for grad in grads)
    return [grad for grad in grads if grad is not None]


@pytest.mark.parametrize(
    ("module", "shape"),
    [
        (nn.Conv1d(2, 3, 3), (2, 2, 8)),
        (nn.Conv2d(2, 4, 3, stride=2, padding=1, groups=2), (2, 2, 6, 6)),
        (nn.Conv3d(1, 2, 2, dilation=2), (1, 1, 4, 4, 4)),
        (nn.ConvTranspose2d(2, 3, 3, stride=2, output_padding=1), (2, 2, 4, 4)),
        (nn.Linear(4, 3), (2, 4)),
        (nn.BatchNorm2d(3), (2, 3, 4, 4)),
        (nn.LayerNorm(4), (2, 4)),
        (nn.Sequential(nn.Conv2d(1, 2, 3), nn.MaxPool2d(2), nn.GELU(), nn.Flatten()), (2, 1, 6, 6)),
    ],
    ids=lambda value: type(value).__name__ if isinstance(value, nn.Module) else None,
)
def test_gradients_are_the_cpus(module: nn.Module, shape: tuple[int, ...]) -> None:
    torch.manual_seed(0)
    x = torch.randn(shape)
    expected = gradients(copy.deepcopy(module), x)
    got = gradients(copy.deepcopy(module).to("loom"), x.to("loom"))
    for ours, theirs in zip(got, expected, strict=True):
        assert ours.is_loom  # type: ignore[attr-defined]
        torch.testing.assert_close(ours.cpu(), theirs)


@pytest.mark.parametrize("transposed", [False, True])
def test_double_backward_of_convolution(transposed: bool) -> None:
    x = torch.randn(1, 1, 4, 4, dtype=torch.double, device="loom", requires_grad=True)
    weight = torch.randn(1, 1, 3, 3, dtype=torch.double, device="loom", requires_grad=True)
    convolution = nn.functional.conv_transpose2d if transposed else nn.functional.conv2d
    assert torch.autograd.gradcheck(convolution, (x, weight))
    assert torch.autograd.gradgradcheck(convolution, (x, weight))


def test_module_to_keeps_the_parameters() -> None:
    module = nn.Linear(2, 2)
    weight, value = module.weight, module.weight.detach().clone()
    optimizer = torch.optim.SGD(module.parameters(), lr=1.0)
    assert module.to("loom").weight is weight
    assert weight.device == torch.device("loom:0")
    module.weight.sum().backward()
    optimizer.step()
    torch.testing.assert_close(module.weight.detach().cpu(), value - 1)
    assert module.to("loom:1").weight is weight
    assert module.cpu().weight is weight
    assert weight.device.type == "cpu"


def test_gradients_cross_devices() -> None:
    x = torch.tensor([1.0, 2.0], requires_grad=True)
    y = (x.to("loom:0") * 2).to("loom:1").square().to("cpu")
    y.sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [8, 16]


def test_an_error_in_a_hook_or_a_function_reaches_the_caller() -> None:
    class Bad(torch.autograd.Function):
        @staticmethod
        def forward(ctx: object, x: Tensor) -> Tensor:
            return x * 2

        @staticmethod
        def backward(ctx: object, grad: Tensor) -> Tensor:
            raise KeyError("backward")

    x = torch.ones(2, device="loom", requires_grad=True)
    with pytest.raises(KeyError, match="backward"):
        Bad.apply(x).sum().backward()

    def hook(grad: Tensor) -> None:
        raise LookupError("hook")

    y = x * 2
    y.register_hook(hook)
    with pytest.raises(LookupError, match="hook"):
        y.sum().backward()
    (x * 3).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [3, 3]


def test_changing_a_saved_tensor_is_noticed() -> None:
    x = torch.ones(2, device="loom", requires_grad=True)
    y = x.exp()
    y.detach().add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        y.sum().backward()


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpoint_draws_the_same_numbers_again(reentrant: bool) -> None:
    x = torch.ones(64, device="loom", requires_grad=True)
    y = checkpoint(lambda t: nn.functional.dropout(t, 0.5), x, use_reentrant=reentrant)
    y.sum().backward()
    assert x.grad is not None
    assert torch.equal(x.grad, y.detach())


def test_forward_mode() -> None:
    x, tangent = torch.tensor([0.0, 1.0], device="loom"), torch.tensor([1.0, 2.0], device="loom")
    _, got = torch.func.jvp(torch.sin, (x,), (tangent,))
    torch.testing.assert_close(got.cpu(), torch.cos(x.cpu()) * tangent.cpu())


def test_inference_tensors_stay_out_of_autograd() -> None:
    with torch.inference_mode():
        x = torch.ones(2, device="loom") * 2
    assert x.is_inference()
    weight = torch.ones(2, device="loom", requires_grad=True)
    with pytest.raises(RuntimeError, match="Inference tensors cannot be saved for backward"):
        _ = x * weight
    with pytest.raises(RuntimeError, match="Inplace update to inference tensor outside InferenceMode"):
        x.add_(1)
    assert (x * 0).tolist() == [0, 0]


def test_backward_runs_in_the_calling_thread_on_the_device_of_the_forward():
    seen = []

    class Identity(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            return x.clone()

        @staticmethod
        def backward(ctx, gradient):
            seen.append((threading.current_thread(), torch.loom.current_device()))
            return gradient

    x = torch.ones(2, device="loom:1", requires_grad=True)
    Identity.apply(x).sum().backward()
    assert seen == [(threading.current_thread(), 1)]
    assert torch.loom.current_device() == 0
