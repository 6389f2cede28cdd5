"""``torch.compile(backend="cudagraphs")`` under CUDA's name: what it captures is replayed."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.slow
def test_the_backend_captures_and_replays(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch_loom.compiler.inductor.graphs import Region

        captures, capture = [], Region._capture
        Region._capture = lambda self, *args: captures.append(args) or capture(self, *args)
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).cuda()
        plain = torch.nn.Sequential(torch.nn.Linear(8, 8), torch.nn.BatchNorm1d(8)).cuda()
        plain.load_state_dict(model.state_dict())
        compiled = torch.compile(model, backend="cudagraphs")
        optimizers = [torch.optim.SGD(each.parameters(), lr=0.1) for each in (model, plain)]
        for _ in range(4):
            x = torch.randn(4, 8, device="cuda")
            results = []
            for each, optimizer in zip((compiled, plain), optimizers, strict=True):
                optimizer.zero_grad()
                loss = each(x).square().mean()
                loss.backward()
                optimizer.step()
                results.append(loss.item())
            assert abs(results[0] - results[1]) < 1e-5, results
        assert torch.equal(model[1].num_batches_tracked, plain[1].num_batches_tracked)
        assert torch.allclose(model[1].running_mean, plain[1].running_mean)
        assert captures
        with torch.no_grad():
            for _ in range(3):
                assert torch.allclose(compiled(x), plain(x), atol=1e-5)
        # A graph with a tensor of the host is not captured, and its backward pass runs all the same.
        mixed = torch.compile(lambda a, b: a + b.cuda(), backend="cudagraphs")
        a = torch.ones(3, device="cuda", requires_grad=True)
        mixed(a, torch.ones(3)).sum().backward()
        assert a.grad.tolist() == [1, 1, 1]
        """,
        NAME,
    )
