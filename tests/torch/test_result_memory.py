"""Results that the device has no memory for: refused before the host computes them."""

from __future__ import annotations

from tests.conftest import PythonRunner

PROGRAM = """
import resource

import torch
import torch.nn.functional as F


def host_mib():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss >> 10


line = torch.zeros(100_000, 1, device="loom")
square = torch.zeros(1, device="loom").expand(30_000, 30_000)
"""


def test_what_does_not_fit_is_refused_before_it_is_computed(warm_python: PythonRunner) -> None:
    warm_python(
        PROGRAM
        + """
calls = {
    "product": lambda: line @ line.T,
    "elements": lambda: square.exp(),
    "broadcast": lambda: line + line.T,
    "softmax": lambda: square.softmax(0),
    "joined": lambda: torch.cat([square, square]),
    "decomposed": lambda: torch.linalg.lu(square),
    "several": lambda: square.sort(),
    "inverses": lambda: torch.linalg.inv_ex(torch.ones(1, 1, 1, device="loom").expand(600_000_000, 1, 1)),
}
before = host_mib()
for name, call in calls.items():
    for _ in range(2):  # the first one teaches the second one
        try:
            call()
            raise AssertionError(name)
        except torch.OutOfMemoryError as error:
            assert "Tried to allocate" in str(error), (name, error)
assert host_mib() - before < 600, (before, host_mib())
assert torch.loom.memory_stats()["num_ooms"] == 2 * len(calls)
assert torch.equal((line[:3] + 1).cpu(), torch.ones(3, 1))
""",
        {"TORCH_LOOM_MEMORY": "2GiB"},
    )


def test_scratch_is_the_hosts_however_large(warm_python: PythonRunner) -> None:
    """A kernel of the host's unfolds what a chip's does not."""
    warm_python(
        PROGRAM
        + """
x = torch.randn(1, 64, 256, 256, generator=torch.Generator().manual_seed(1))
weight = torch.randn(64, 64, 3, 3, generator=torch.Generator().manual_seed(2))
with torch.backends.mkldnn.flags(enabled=False):
    for _ in range(2):
        found = F.conv2d(x.to("loom"), weight.to("loom"), dilation=2, padding=2)
        assert torch.equal(found.cpu(), F.conv2d(x, weight, dilation=2, padding=2))
        del found
assert torch.loom.memory_stats()["num_ooms"] == 0
""",
        {"TORCH_LOOM_MEMORY": "66MiB"},
    )
