"""Under the lazy policy a graph's tensors are made on the device, in the graph's own memory."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner


@pytest.mark.slow
def test_what_grows_in_a_capture_is_the_graphs(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        x = torch.ones(1000, device="loom").add(1)
        graph = torch.loom.CUDAGraph()
        with torch.loom.graph(graph):
            grown = torch.empty(0, device="loom")
            torch.add(x, 1, out=grown)
            result = grown * 2
            del grown
            counted = torch.zeros(3, device="loom")
            counted += 1
        others = [torch.full((1000,), 7.0, device="loom").mul(1) for _ in range(8)]
        for _ in range(2):
            graph.replay()
        assert result.unique().tolist() == [6.0]
        assert counted.tolist() == [1.0] * 3  # made anew by each replay
        assert all(other.unique().tolist() == [7.0] for other in others)
        """,
        {"TORCH_LOOM_MEMORY_POLICY": "lazy"},
    )


@pytest.mark.slow
def test_a_wrong_op_in_a_capture_says_what_is_wrong(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        a, b = torch.ones(3, device="loom"), torch.ones(4, device="loom")
        try:
            with torch.loom.graph(torch.loom.CUDAGraph()):
                a + b
        except RuntimeError as error:
            assert "(3) must match the size of tensor b (4)" in str(error), error
        else:
            raise AssertionError("shapes that do not match were captured")
        assert (a + 1).tolist() == [2.0] * 3
        """,
        {},
    )
