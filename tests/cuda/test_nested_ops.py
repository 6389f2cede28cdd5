"""Nested tensors where CUDA has kernels that the CPU lacks, and where Inductor lowers them for CUDA alone."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.slow
@pytest.mark.parametrize("lengths", [(3, 5, 1), (0, 4, 2), (0, 0)], ids=["full", "one empty", "all empty"])
def test_parts_with_rows_of_a_dense_tensor(warm_python: PythonRunner, lengths: tuple[int, ...]) -> None:
    warm_python(
        f"""
        import warnings
        import torch

        warnings.simplefilter("ignore")
        torch.manual_seed(0)
        for width in ((8,), ()):
            parts = [torch.randn(length, *width) for length in {lengths}]
            rows = torch.randn(len(parts), 1, *width)
            nested = torch.nested.nested_tensor([part.cuda() for part in parts])
            for op in (torch.add, torch.mul):
                made = op(nested, rows.cuda()).unbind()
                for result, part, row in zip(made, parts, rows, strict=True):
                    assert torch.equal(result.cpu(), op(part, row))
        """,
        NAME,
    )


@pytest.mark.slow
def test_compiled_padding_has_gradients(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch.nested._internal.nested_tensor import nested_from_padded

        def program(nested):
            padded = nested.to_padded_tensor(0.5).sin()
            return nested_from_padded(padded, nested.offsets(), sum_S=nested.values().shape[0])

        torch.manual_seed(0)
        parts = [torch.randn(length, 4) for length in (2, 5, 3)]
        found = []
        for run in (program, torch.compile(program, fullgraph=True)):
            nested = torch.nested.nested_tensor(
                parts, layout=torch.jagged, device="cuda", requires_grad=True
            )
            result = run(nested)
            result.values().sum().backward()
            found.append([result.values().detach(), nested.grad.values()])
        for eager, compiled in zip(*found, strict=True):
            torch.testing.assert_close(eager, compiled)
        assert torch.equal(found[0][1].cpu(), torch.cat(parts).cos())
        """,
        NAME,
    )
