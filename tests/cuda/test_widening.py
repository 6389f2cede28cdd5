"""Under the name cuda, calls on dtypes that only CUDA has kernels for are computed in wider ones."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}
PROGRAM = Path(__file__).with_name("widening.py")


@pytest.mark.slow
def test_the_table_has_what_only_cuda_takes(run_python: PythonRunner) -> None:
    done = run_python("from tests.cuda.widening import main; main()", NAME)
    agreed, ops = map(int, done.stdout.split())
    assert agreed > 100
    assert ops > 45


def test_calls_on_dtypes_that_the_cpu_lacks(fork_python: PythonRunner) -> None:
    """In place, with `out=`, with gradients, captured, and in dtypes that depend."""
    fork_python(
        """
        import torch_loom
        import torch
        import torch.nn.functional as F

        # A value on the border of two bins: 29 / 100 * 100 is less than 29.
        counts = torch.histc(torch.tensor([29, 58, 100, 101, -1], device="cuda"), 100, 0, 100)
        assert counts.dtype == torch.int64 and counts.nonzero().flatten().tolist() == [29, 58, 99]
        assert torch.histc(torch.tensor([3, 5], dtype=torch.uint8, device="cuda"), 2).tolist() == [1, 1]
        assert torch.histc(torch.tensor([4], device="cuda"), 3).tolist() == [0, 1, 0]
        assert torch.histc(torch.empty(0, dtype=torch.int32, device="cuda"), 3).tolist() == [0, 0, 0]
        out = torch.empty(0, dtype=torch.int64, device="cuda")
        assert torch.histc(torch.arange(4, device="cuda"), 2, 0, 3, out=out) is out and out.tolist() == [2, 2]
        raises("RuntimeError", "max must be larger than min", lambda: torch.histc(counts, 3, 2, 1))

        # Sums of complex numbers, without those of which a part is not a number.
        z = torch.tensor([[1 + 2j, complex("nan"), 3j]], device="cuda", requires_grad=True)
        assert torch.nansum(z).item() == 1 + 5j and torch.nansum(z, 0, keepdim=True).shape == (1, 3)
        torch.nansum(z).abs().backward()
        assert z.grad[0, 1] == 0 and z.grad[0, 0] != 0
        half_z = z.detach().to(torch.complex32)
        assert torch.nansum(half_z).dtype == torch.complex32 and torch.nansum(half_z).item() == 1 + 5j
        assert torch.nansum(z, dtype=torch.complex128).dtype == torch.complex128

        # Transforms of half precision: only of sizes that are powers of two, as cuFFT.
        x = torch.randn(4, 8, device="cuda", dtype=torch.float16, requires_grad=True)
        y = torch.fft.rfft2(x)
        assert y.dtype == torch.complex32
        back = torch.fft.irfft2(y)
        torch.testing.assert_close(back, x, atol=1e-2, rtol=0)
        back.sum().backward()
        assert x.grad.dtype == torch.float16 and x.grad.shape == x.shape
        raises("RuntimeError", "powers of two when computing in half precision, but got a signal size of[7]",
               lambda: torch.fft.fft(torch.ones(7, dtype=torch.float16, device="cuda")))
        assert torch.fft.fft(torch.ones(7, device="cuda")).shape == (7,)

        # Written operands.
        c = torch.full((3,), 1 + 1j, dtype=torch.complex32, device="cuda")
        same = c.sqrt_()
        assert same is c and c.dtype == torch.complex32
        torch.testing.assert_close(torch.view_as_real(c)[:, 0].float().cpu(), torch.full((3,), 1.0987),
                                   atol=1e-3, rtol=0)
        out = torch.empty(0, dtype=torch.complex32, device="cuda")
        assert torch.exp(c, out=out) is out and out.shape == (3,)
        raises("RuntimeError", "can't be cast to the desired output type",
               lambda: torch.exp(c, out=torch.empty(3, device="cuda")))
        c /= 2
        assert (c + 1).dtype == torch.complex32 and torch.angle(c).dtype == torch.float16
        flag = torch.tensor([True, False], device="cuda")
        assert torch.abs(flag).dtype == torch.bool and F.softsign(flag).dtype == torch.float32
        # Lists of such tensors.
        assert [t.dtype for t in torch._foreach_abs([flag, flag])] == [torch.bool] * 2
        several, outs = [c.clone(), c[:1].clone()], [torch.empty_like(c)]
        torch._foreach_exp_(several)
        for one, t in zip(several, (c, c[:1]), strict=True):
            assert torch.view_as_real(one).equal(torch.view_as_real(torch.exp(t)))
        torch.ops.aten._foreach_exp.out([c], out=outs)
        assert torch.view_as_real(outs[0]).equal(torch.view_as_real(torch.exp(c)))
        # One tensor in two places of a list is written twice.
        twice = torch.ones(2, dtype=torch.complex32, device="cuda")
        torch._foreach_div_([twice, twice], 2)
        assert torch.view_as_real(twice)[:, 0].tolist() == [0.25, 0.25]
        # Promoted to what the CPU has a kernel for.
        assert torch.div(c, torch.ones(3, device="cuda")).dtype == torch.complex64

        # Pooling and losses of half precision, trained.
        for dtype in (torch.float16, torch.bfloat16):
            image = torch.randn(1, 2, 4, 4, 4, device="cuda", dtype=dtype, requires_grad=True)
            F.avg_pool3d(image, 2).sum().backward()
            assert image.grad.dtype == dtype and bool((image.grad == 0.125).all())
            scores = torch.randn(3, 5, device="cuda", dtype=dtype, requires_grad=True)
            F.multi_margin_loss(scores, torch.tensor([0, 2, 4], device="cuda")).backward()
            assert scores.grad.dtype == dtype
            upright = torch.rand(1, 1, 4, 4, device="cuda", dtype=dtype, requires_grad=True)
            F.interpolate(upright, 2, mode="bilinear", antialias=True).sum().backward()
            assert upright.grad.dtype == dtype

        # Captured, and replayed on other values.
        given = torch.zeros(4, dtype=torch.complex32, device="cuda")
        torch.exp(given)
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            kept = torch.exp(given)
        given.fill_(1)
        graph.replay()
        torch.cuda.synchronize()
        assert abs(kept[0].item() - 2.718) < 2e-3
        """,
        NAME,
    )


def test_no_other_name_widens(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        import torch
        raises("NotImplementedError", "not implemented for 'Long'",
               lambda: torch.histc(torch.arange(4, device="loom"), 2))
        """
    )


def test_sparse_operands_of_half_precision(fork_python: PythonRunner) -> None:
    """Sums and products of sparse matrices, which the engine has in float32 only."""
    fork_python(
        """
        import torch_loom
        import torch

        torch.manual_seed(0)
        for dtype in (torch.float16, torch.bfloat16):
            dense = torch.randint(-2, 3, (6, 6), device="cuda").to(dtype)  # sums and products are exact
            other = torch.randint(-2, 3, (6, 6), device="cuda").to(dtype)
            rows = dense.to_sparse_csr()
            for one in (dense.to_sparse(), rows, dense.to_sparse_bsr((3, 3))):
                product = one @ other
                assert product.dtype == dtype and product.equal(dense @ other)
                assert torch.addmm(other, one, other).equal(other + dense @ other)
                out = torch.empty_like(other)
                assert torch.mm(one, other, out=out) is out and out.equal(product)
            assert (rows @ other[0]).equal(dense @ other[0])
            for one in (dense.to_sparse(), rows):
                several = one @ one
                assert several.layout == one.layout and several.dtype == dtype
                assert several.values().device == dense.device and several.to_dense().equal(dense @ dense)
            coordinates = dense.to_sparse()
            before = torch.cuda.memory_allocated()
            twice = coordinates + coordinates
            assert twice.dtype == dtype and twice.to_dense().equal(2 * dense)
            assert torch.cuda.memory_allocated() > before
            del twice
            same = coordinates.add_(torch.ones_like(dense).to_sparse())
            assert same is coordinates and same._nnz() > 0 and same.to_dense().equal(dense + 1)
            assert (same - dense.to_sparse()).to_dense().equal(torch.ones_like(dense))
            weight, x = rows.clone().requires_grad_(), other.clone().requires_grad_()
            (weight @ x).sum().backward()
            assert x.grad.dtype == dtype and x.grad.equal(dense.t() @ torch.ones_like(dense))
            with torch.cuda.stream(torch.cuda.Stream()):
                later = dense.to_sparse() + dense.to_sparse()
            torch.cuda.synchronize()
            assert later.to_dense().equal(2 * dense)
        # What cuSPARSE's products take no dtype for stays refused.
        pair = torch.ones(2, 2, 2, device="cuda").half()
        raises("NotImplementedError", "not implemented for 'Half'", lambda: torch.bmm(pair.to_sparse(), pair))
        """,
        NAME,
    )
