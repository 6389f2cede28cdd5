"""A program on a driver of a library of its own, whose memory only `locate` finds: tests/driver/mirror."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

ROOT = Path(__file__).parents[2]
MIRROR = {"TORCH_LOOM_DRIVER": str(ROOT / "build/temp/libloom_mirror.so"), "TORCH_LOOM_MEMORY": "1GiB"}

TRAIN = """
import torch
from torch import nn

def losses(device):
    torch.manual_seed(0)
    layers = [nn.Conv2d(1, 4, 3), nn.ReLU(), nn.Flatten(), nn.LayerNorm(144), nn.Linear(144, 10)]
    model = nn.Sequential(*layers).to(device)
    images, labels = torch.rand(16, 1, 8, 8).to(device), torch.arange(16).remainder(10).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)
    found = []
    for _ in range(5):
        loss = nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        found.append(loss.item())
    return found
"""


def test_a_program_trains_as_on_the_cpu(warm_python: PythonRunner) -> None:
    warm_python(
        TRAIN
        + """
properties = torch.loom.get_device_properties(0)
assert (properties.driver, properties.engine) == ("mirror", "cpu")
assert not torch.loom.can_device_access_peer(0, 1)
expected = losses("cpu")
assert losses("loom") == expected
side = torch.loom.Stream()
with torch.loom.stream(side):
    assert losses("loom:0") == expected
""",
        MIRROR,
    )


@pytest.mark.slow
def test_memory_copies_and_views(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.arange(12.0, device="loom").reshape(3, 4)
        here = torch.loom.memory_allocated()
        y = x.T[1:].to("loom:1", non_blocking=True)
        assert y.cpu().tolist() == [[1, 5, 9], [2, 6, 10], [3, 7, 11]]
        pinned = torch.empty(3, 4, pin_memory=True)
        pinned.copy_(x, non_blocking=True)
        torch.loom.synchronize()
        assert torch.equal(pinned, x.cpu()) and pinned.is_pinned()
        x.resize_(6, 4)[3:] = 7
        assert x.sum().item() == 66 + 84
        assert x.nonzero().shape == (23, 2)
        out = torch.empty(0, device="loom")
        torch.cat([x, x], out=out)
        assert out.shape == (12, 4)
        z = torch.zeros(4, device="loom")
        del x, y, out, z
        assert torch.loom.memory_allocated() == 0
        try:
            torch.empty(2 << 30, dtype=torch.uint8, device="loom")
        except torch.OutOfMemoryError:
            pass
        else:
            raise AssertionError
        """,
        MIRROR,
    )


@pytest.mark.slow
def test_a_failure_is_sticky(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        side = torch.loom.Stream()
        kept = torch.ones(4, device="loom")
        rows = torch.arange(12.0).reshape(3, 4).to("loom")
        good, bad = torch.tensor([1, 2], device="loom"), torch.tensor([1, 7], device="loom")
        torch.loom.synchronize()
        try:
            torch.add(torch.ones(2, device="loom"), torch.ones(3, device="loom"))
        except RuntimeError as error:
            assert "must match" in str(error)
        assert (kept + 1).sum().item() == 8, "what an op refuses at once is no failure of the device"
        with torch.loom.stream(side):
            torch.index_select(rows, 0, good)
            side.synchronize()
            torch.index_select(rows, 0, bad)
            try:
                side.synchronize()
            except IndexError as error:
                assert "aten::index_select" in str(error)
            else:
                raise AssertionError("nothing failed")
        for call in (side.synchronize, torch.loom.synchronize, kept.cpu, lambda: kept + 1):
            try:
                call()
            except RuntimeError as error:
                assert "until the process ends" in str(error), error
            else:
                raise AssertionError(call)
        del kept, rows, good, bad
        torch.loom.empty_cache()
        """,
        MIRROR,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("value", "error", "message"),
    [
        ("./none.so", "ValueError", "cannot load the driver of .*/none.so: "),
        ("none.so", "ConfigurationError", "Allowed: virtual, null, or the path of a library"),
    ],
)
def test_a_library_that_is_not_there(warm_python: PythonRunner, value: str, error: str, message: str) -> None:
    done = warm_python(
        "import torch; torch.ones(1, device='loom')", {"TORCH_LOOM_DRIVER": value}, check=False
    )
    assert done.returncode == 1
    last = done.stderr.strip().splitlines()[-1]
    assert error in last
    assert re.search(message, last)


@pytest.mark.slow
def test_modes_that_a_driver_has_not(warm_python: PythonRunner) -> None:
    done = warm_python(
        "import torch; torch.ones(1, device='loom')", MIRROR | {"TORCH_LOOM_LAUNCH": "chaos"}, check=False
    )
    assert "NotImplementedError: the driver mirror has no launch mode chaos" in done.stderr
