"""Several devices, threads, and where work may be: what belongs to a thread, and what may not be mixed."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "devices"

TWO = {"TORCH_LOOM_DEVICES": "2"}


@pytest.mark.report("pytorch/pytorch#17129", "`DataParallel` of a module that is not on its first device")
@pytest.mark.report("pytorch/pytorch#17363", "`DataParallel` names the device that it expects")
def test_a_module_on_the_host(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_module_on_the_host.py", TWO)


@pytest.mark.report("airsplay/lxmert#17", "`DataParallel` gathers scalars to a vector, with a warning")
@pytest.mark.report("pytorch/pytorch#38493", "replicas of `DataParallel` have no parameters")
@pytest.mark.report(
    "pytorch/pytorch#2017", "the current device in the backward of a replica is the replica's"
)
def test_replicas(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "replicas.py", TWO)


@pytest.mark.report("pfnet/pytorch-pfn-extras#726", "a new thread begins on device 0")
@pytest.mark.report("pytorch/pytorch#58626", "the current device and stream belong to a thread")
def test_a_new_thread(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_new_thread.py", TWO)


@pytest.mark.report("pytorch/pytorch#7601", "the backward of an op runs on the stream of its forward")
def test_the_stream_of_a_backward(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "the_stream_of_a_backward.py", TWO)


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/notes/autograd.html#multithreaded-autograd",
    "hooks run in the thread of their device: they do not see thread-locals of the caller",
)
def test_the_thread_of_a_backward(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "the_thread_of_a_backward.py")


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
    fork_cuda(PROGRAMS / "what_does_not_fit_together.py", TWO, given=(call, MIXED[call]))


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/generated/torch.cuda.set_sync_debug_mode.html",
    "`set_sync_debug_mode` finds what waits for the device",
)
def test_what_waits(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "what_waits.py")
