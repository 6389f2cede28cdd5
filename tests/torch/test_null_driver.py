"""The null driver: a program's shapes, memory and errors, without its arithmetic."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

NULL = {"TORCH_LOOM_DRIVER": "null", "TORCH_LOOM_MEMORY": "80GiB"}


def test_a_program_runs_to_its_end(warm_python: PythonRunner) -> None:
    done = warm_python(
        """
        import resource, torch
        from torch import nn
        layers = [nn.Flatten(), nn.Linear(64, 8192), nn.GELU(), nn.LayerNorm(8192), nn.Linear(8192, 10)]
        model = nn.Sequential(nn.Conv2d(1, 1, 3, padding=1), nn.Dropout(0.5), *layers).to("loom")
        optimizer = torch.optim.AdamW(model.parameters())
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        for _ in range(2):
            with torch.autocast("loom", dtype=torch.bfloat16):
                output = model(torch.randn(4096, 1, 8, 8, device="loom"))
            loss = nn.functional.cross_entropy(output, torch.zeros(4096, dtype=torch.long, device="loom"))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
        assert output.shape == (4096, 10) and output.dtype == torch.bfloat16
        assert loss.shape == () and loss.device == torch.device("loom:0")
        used = torch.loom.max_memory_allocated()
        assert used > 2**28, used
        # Nothing of it was ever touched.
        assert (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - peak) * 1024 < used / 2
        """,
        NULL,
    )
    assert done.stderr == ""


@pytest.mark.slow
def test_shapes_views_and_memory_are_real(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.zeros(3, 4, device="loom")
        assert torch.loom.memory_allocated() == 512
        y = x.T[1:]
        assert y.data_ptr() == x.data_ptr() + 4 and y.shape == (3, 3)
        assert torch.loom.memory_allocated() == 512
        z = y @ x.to("loom:1").to("loom:0")
        assert z.shape == (3, 4) and torch.loom.memory_allocated() == 1024
        assert torch.add(z, 1, out=torch.empty(0, device="loom")).shape == (3, 4)
        big = torch.empty(60 << 30, dtype=torch.uint8, device="loom")
        try:
            torch.empty(60 << 30, dtype=torch.uint8, device="loom")
        except torch.OutOfMemoryError:
            del big
        else:
            raise AssertionError("160 GB fit into 80")
        assert torch.loom.memory_allocated() == 1024
        """,
        NULL,
    )


@pytest.mark.slow
def test_errors_are_real_and_values_are_constants(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch, warnings
        def raises(kind, text, body):
            try:
                body()
            except kind as error:
                assert text in str(error), error
            else:
                raise AssertionError(text)
        x = torch.zeros(3, 4, device="loom")
        raises(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)", lambda: x @ x)
        raises(RuntimeError, "at least two devices, loom:0 and loom:1", lambda: x + x.to("loom:1"))
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert x.add(1).sum().item() == 0
            assert not x.add(1).bool().any()
        assert str(caught[0].message).startswith("reads a value of a device that computes nothing")
        assert "Triggered" not in str(caught[0].message)
        assert caught[0].filename == raises.__code__.co_filename
        assert x.cpu().shape == (3, 4)
        square = x.new_zeros(3, 3)
        assert torch.linalg.eigvals(square).shape == (3,)
        assert torch.cholesky_inverse(square).shape == (3, 3)
        """,
        NULL,
    )
