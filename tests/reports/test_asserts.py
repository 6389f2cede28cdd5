"""Values that a kernel cannot take: device-side asserts."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

BROKEN = """
embedding = torch.nn.Embedding(10, 3).cuda()
assert embedding(torch.tensor([1, 2]).cuda()).shape == (2, 3)
cached = torch.empty(30 << 20, dtype=torch.uint8, device="cuda")
del cached
out = embedding(torch.tensor([3, 10]).cuda())  # returns: nobody has waited

def asserts(body):
    raises("AcceleratorError", "CUDA error: device-side assert triggered", body)
"""


@pytest.mark.report(
    "pytorch/pytorch#29966", "an index out of range: the error is raised later, by whatever waits"
)
@pytest.mark.report(
    "pytorch/pytorch#25537", "after a device-side assert every call fails until the process ends"
)
def test_an_index_out_of_range(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        BROKEN
        + """
asserts(lambda: out.sum().item())
for body in (
    lambda: torch.zeros(1).cuda(),
    lambda: torch.rand(2, device="cuda"),
    lambda: embedding.weight.cpu(),
    lambda: repr(out),
    lambda: out.sum().backward(),
    torch.cuda.synchronize,
):
    asserts(body)
assert torch.cuda.memory_allocated() > 0 and torch.cuda.get_device_name()
assert (torch.ones(3) * 2).sum() == 6
"""
    )


@pytest.mark.report(
    "https://docs.nvidia.com/cuda/cuda-runtime-api/group__CUDART__TYPES.html",
    "after an assert every call of the runtime returns its error, also those that start no work",
)
def test_calls_without_work_fail_too(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        BROKEN
        + """
asserts(torch.cuda.synchronize)
asserts(torch.cuda.empty_cache)
asserts(torch.cuda.mem_get_info)
asserts(torch.accelerator.empty_cache)
"""
    )


@pytest.mark.report(
    "pytorch/pytorch#18014", "labels out of range: an assert of the loss; `ignore_index` is none"
)
def test_labels_out_of_range(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        import torch.nn.functional as F
        x = torch.randn(4, 3, device="cuda", requires_grad=True)
        loss = F.cross_entropy(x, torch.tensor([0, 1, 2, -100]).cuda())
        loss.backward()
        assert loss.item() > 0 and x.grad[-1].tolist() == [0, 0, 0]
        loss = F.cross_entropy(x, torch.tensor([0, 1, 2, 3]).cuda())
        loss.backward()
        raises("AcceleratorError", "CUDA error: device-side assert triggered", loss.item)
        """
    )
