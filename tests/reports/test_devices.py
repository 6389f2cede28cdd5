"""Several devices, threads, and where work may be: what belongs to a thread, and what may not be mixed."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

TWO = {"TORCH_LOOM_DEVICES": "2"}

PARALLEL = """
import warnings
from torch import nn
devices, num_parameters = [], []

class Noted(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        devices.append(("forward", torch.cuda.current_device()))
        return x * 1

    @staticmethod
    def backward(ctx, gradient):
        devices.append(("backward", torch.cuda.current_device()))
        return gradient

class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.layer, self.num_calls = nn.Linear(2, 2), 0

    def forward(self, x):
        self.num_calls += 1
        num_parameters.append(len(list(self.parameters())))
        return Noted.apply(self.layer(x)).sum()
"""


@pytest.mark.report("pytorch/pytorch#17129", "`DataParallel` of a module that is not on its first device")
@pytest.mark.report("pytorch/pytorch#17363", "`DataParallel` names the device that it expects")
def test_a_module_on_the_host(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        PARALLEL
        + """
raises(
    "RuntimeError",
    "module must have its parameters and buffers on device cuda:0 (device_ids[0]) "
    "but found one of them on device: cpu",
    lambda: nn.DataParallel(Model())(torch.ones(4, 2).cuda()),
)
""",
        TWO,
    )


@pytest.mark.report("airsplay/lxmert#17", "`DataParallel` gathers scalars to a vector, with a warning")
@pytest.mark.report("pytorch/pytorch#38493", "replicas of `DataParallel` have no parameters")
@pytest.mark.report(
    "pytorch/pytorch#2017", "the current device in the backward of a replica is the replica's"
)
def test_replicas(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        PARALLEL
        + """
model = nn.DataParallel(Model().cuda())
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    out = model(torch.ones(4, 2).cuda())
assert out.shape == (2,) and out.device.index == 0
assert any("all input tensors were scalars; will instead unsqueeze" in str(one.message) for one in caught)
out.sum().backward()
assert sorted(devices) == [("backward", 0), ("backward", 1), ("forward", 0), ("forward", 1)], devices
assert num_parameters == [0, 0] and model.module.num_calls == 0
assert model.module.layer.weight.grad.device.index == 0
""",
        TWO,
    )


@pytest.mark.report("pfnet/pytorch-pfn-extras#726", "a new thread begins on device 0")
@pytest.mark.report("pytorch/pytorch#58626", "the current device and stream belong to a thread")
def test_a_new_thread(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import threading
        found = []

        def note():
            found.append(torch.cuda.current_device())
            found.append(torch.cuda.current_stream() == torch.cuda.default_stream())

        torch.cuda.set_device(1)
        with torch.cuda.stream(torch.cuda.Stream()):
            thread = threading.Thread(target=note)
            thread.start()
            thread.join()
            assert torch.cuda.current_device() == 1
        assert found == [0, True]
        """,
        TWO,
    )


@pytest.mark.report("pytorch/pytorch#7601", "the backward of an op runs on the stream of its forward")
def test_the_stream_of_a_backward(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        side, seen = torch.cuda.Stream(device=1), []
        x = torch.ones(3, device="cuda:1", requires_grad=True)
        with torch.cuda.stream(side):
            y = x * 2
            y.register_hook(
                lambda gradient: seen.append((torch.cuda.current_device(), torch.cuda.current_stream()))
            )
            z = y.exp()
        z.sum().backward()
        assert seen == [(1, side)]
        """,
        TWO,
    )


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/notes/autograd.html#multithreaded-autograd",
    "hooks run in the thread of their device: they do not see thread-locals of the caller",
)
def test_the_thread_of_a_backward(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import contextvars, threading
        local, variable, seen = threading.local(), contextvars.ContextVar("variable", default=None), []
        local.value = 1
        variable.set(1)
        x = torch.ones(3, device="cuda", requires_grad=True)
        y = x * 2
        y.register_hook(
            lambda gradient: seen.append((threading.get_ident(), hasattr(local, "value"), variable.get()))
        )
        y.sum().backward()
        ((thread, *values),) = seen
        assert thread != threading.get_ident() and values == [False, None]
        """
    )


MIXED = {
    "F.linear(torch.ones(2, 3), x)": (
        "mat2 is on cuda:0, different from other tensors on cpu "
        "(when checking argument in method wrapper_CUDA_mm)"
    ),
    "torch.cat([x, torch.ones(4, 3)])": (
        "tensors is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA_cat)"
    ),
    "F.embedding(torch.tensor([0]), x)": (
        "index is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA__index_select)"
    ),
    "F.cross_entropy(x, torch.zeros(4, dtype=torch.long))": (
        "target is on cpu, different from other tensors on cuda:0 "
        "(when checking argument in method wrapper_CUDA_nll_loss_forward)"
    ),
    "x + torch.ones(4, 3)": "found at least two devices, cuda:0 and cpu!",
    "x + x.to(1)": "found at least two devices, cuda:0 and cuda:1!",
    "torch.where(x > 0, torch.ones(4, 3), x)": "found at least two devices, cuda:0 and cpu!",
    "torch.ones(3)[i]": "indices should be either on cpu or on the same device as the indexed tensor (cpu)",
    "x.numpy()": (
        "can't convert cuda:0 device type tensor to numpy. "
        "Use Tensor.cpu() to copy the tensor to host memory first."
    ),
    "torch.nn.LSTM(3, 3).cuda()(torch.ones(2, 1, 3))": (
        "Input and parameter tensors are not at the same device, "
        "found input tensor at cpu and parameter tensor at cuda:0"
    ),
    "torch.nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2))": (
        "Input type (torch.FloatTensor) and weight type (torch.cuda.FloatTensor) should be the same"
    ),
    "torch.nn.Conv2d(1, 1, 1).cuda()(torch.ones(1, 1, 2, 2).cuda().half())": "should be the same",
    "torch.nn.Linear(3, 2).cuda()(x.half())": (
        "mat1 and mat2 must have the same dtype, but got Half and Float"
    ),
    "torch.rand(2, device='cuda', generator=torch.Generator())": (
        "Expected a 'cuda' device type for generator but found 'cpu'"
    ),
    "torch.ones(1, device='cuda:9')": "CUDA error: invalid device ordinal",
    "pack_padded_sequence(x[:, None], i)": (
        "'lengths' argument should be a 1D CPU int64 tensor, but got 1D cuda:0 Long tensor"
    ),
}


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/notes/cuda.html",
    "errors of operands on different devices, dtypes and generators",
)
@pytest.mark.parametrize("call", MIXED)
def test_what_does_not_fit_together(fork_cuda: PythonRunner, call: str) -> None:
    fork_cuda(
        f"""
        import torch.nn.functional as F
        from torch.nn.utils.rnn import pack_padded_sequence
        x, i = torch.ones(4, 3, device="cuda"), torch.tensor([0], device="cuda")
        try:
            {call}
        except (RuntimeError, TypeError) as error:
            assert {MIXED[call]!r} in str(error), error
        else:
            raise AssertionError("no error")
        assert x[torch.tensor([0])].is_cuda  # indices may be the host's
        """,
        TWO,
    )


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html",
    "`set_sync_debug_mode` finds what waits for the device",
)
def test_what_waits(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x = torch.ones(3, device="cuda")
        torch.cuda.set_sync_debug_mode("error")
        for wait in (x[0].item, x.nonzero, torch.ones(3).cuda, lambda: x[x > 0]):
            try:
                wait()
            except RuntimeError as error:
                assert "called a synchronizing CUDA operation" in str(error), error
            else:
                raise AssertionError("nobody waited")
        torch.ones(3).pin_memory().to("cuda", non_blocking=True)
        """
    )
