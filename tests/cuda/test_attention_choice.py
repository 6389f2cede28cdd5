"""Scaled dot-product attention under CUDA's name: which of CUDA's kernels takes a call."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}


def test_the_kernel_is_the_one_that_cuda_takes(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch.backends import cuda
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as attention

        def operands(dtype=torch.float16, rows=6, columns=6, width=8, heads=2):
            def tensor(time, heads):
                return torch.rand(1, heads, time, width, device="cuda", dtype=dtype)

            return tensor(rows, 2), tensor(columns, heads), tensor(columns, heads)

        def chosen(*given, **options):
            return SDPBackend(torch._fused_sdp_choice(*given, **options))

        flash, efficient, math = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH
        half, single, double = operands(), operands(torch.float32), operands(torch.float64)
        mask = torch.zeros(6, 6, device="cuda", dtype=torch.float16)
        assert chosen(*half) == chosen(*operands(torch.bfloat16)) == flash
        assert chosen(*half, attn_mask=mask) == chosen(*single) == efficient
        assert chosen(*double) == math
        assert chosen(*operands(width=256)) == flash and chosen(*operands(width=264)) == efficient
        assert chosen(*operands(torch.float32, width=6)) == math  # rows of 24 bytes
        assert chosen(*operands(columns=9), is_causal=True) == efficient
        assert chosen(*operands(heads=1), enable_gqa=True) == flash
        assert chosen(*operands(torch.float32, heads=1), enable_gqa=True) == math
        assert chosen(*operands(rows=0)) == math
        row, of_heads = (torch.zeros(shape, device="cuda").half() for shape in ((6,), (2, 1, 6)))
        assert chosen(*half, attn_mask=row) == chosen(*half, attn_mask=of_heads) == efficient
        assert attention(*half, attn_mask=row).shape == (1, 2, 6, 8)
        strided = [one.transpose(-1, -2).contiguous().transpose(-1, -2) for one in half]
        assert chosen(*strided) == math

        with sdpa_kernel([math, efficient], set_priority=True):
            assert chosen(*half) == math
        def named(operands, **more):
            return dict(zip(("query", "key", "value"), operands, strict=True), **more)

        reasons = {
            (flash, "dtype: {Half, BFloat16}"): named(single),
            (flash, "does not support non-null attn_mask"): named(half, attn_mask=mask),
            (flash, "less than or equal to 256"): named(operands(width=264)),
            (efficient, "divisible by 4"): named(operands(torch.float32, width=6)),
            (SDPBackend.CUDNN_ATTENTION, "not compiled with cuDNN"): named(half),
        }
        import warnings

        for (kernel, reason), call in reasons.items():
            with warnings.catch_warnings(record=True) as told, sdpa_kernel(kernel):
                warnings.simplefilter("always")
                try:
                    attention(**call)
                except RuntimeError as error:
                    assert "No available kernel. Aborting execution." in str(error), error
                else:
                    raise AssertionError(f"{kernel} ran: {reason}")
            warned = [str(one.message) for one in told]
            assert any(reason in each for each in warned), (reason, warned)
        with sdpa_kernel(SDPBackend.ERROR):
            try:
                attention(*half)
            except RuntimeError as error:
                assert "No viable backend" in str(error), error
            else:
                raise AssertionError("ran without a kernel")

        torch.use_deterministic_algorithms(True, warn_only=True)
        for kernel, words in ((flash, "Flash Attention"), (efficient, "Memory Efficient attention")):
            with warnings.catch_warnings(record=True) as told, sdpa_kernel(kernel):
                warnings.simplefilter("always")
                attention(*[one.clone().requires_grad_() for one in half]).sum().backward()
            assert any(f"{words} defaults to a non-det" in str(one.message) for one in told), kernel
        torch.use_deterministic_algorithms(False)

        parameters = cuda.SDPAParams(*half, None, 0.0, False, False)
        assert cuda.is_flash_attention_available()
        assert cuda.can_use_flash_attention(parameters) and cuda.can_use_efficient_attention(parameters)
        assert not cuda.can_use_cudnn_attention(parameters)
        """,
        env=NAME,
    )


@pytest.mark.slow
def test_triangles_of_either_corner(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch.nn.attention.bias import causal_lower_right, causal_upper_left
        from torch.nn.functional import scaled_dot_product_attention as attention

        torch.manual_seed(0)
        for dtype, tolerance in ((torch.float16, 1e-2), (torch.float32, 1e-5)):  # flash, memory-efficient
            for corner in (causal_lower_right, causal_upper_left):
                shapes = ((2, 2, 5, 8), (2, 2, 9, 8), (2, 2, 9, 8))
                own = [torch.randn(shape, device="cuda", dtype=dtype, requires_grad=True) for shape in shapes]
                plain = [one.detach().float().cpu().requires_grad_() for one in own]
                got, bias = attention(*own, attn_mask=corner(5, 9)), corner(5, 9)
                expected = attention(*plain, attn_mask=bias._materialize("cpu"))
                torch.testing.assert_close(got.float().cpu(), expected, rtol=tolerance, atol=tolerance)
                gradients = torch.autograd.grad(got.float().square().sum(), own)
                for ours, theirs in zip(
                    gradients, torch.autograd.grad(expected.square().sum(), plain), strict=True
                ):
                    torch.testing.assert_close(
                        ours.float().cpu(), theirs, rtol=10 * tolerance, atol=10 * tolerance
                    )
        """,
        env=NAME,
    )


@pytest.mark.slow
def test_compiled_graphs_with_attention_are_replayed(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch._dynamo.utils import counters
        from torch.nn.functional import scaled_dot_product_attention as attention

        torch.manual_seed(0)
        for dtype, tolerance in ((torch.float16, 2e-2), (torch.float32, 1e-5)):
            torch._dynamo.reset()
            options = {"device": "cuda", "dtype": dtype, "requires_grad": True}
            operands = [torch.randn(2, 2, 17, 8, **options) for _ in "qkv"]

            def call(query, key, value):
                return attention(query.mul(2), key, value, is_causal=True).square()

            compiled = torch.compile(call, mode="reduce-overhead", fullgraph=True)
            for _ in range(3):
                results = []
                for function in (call, compiled):
                    out = function(*operands)
                    results.append([out.clone(), *torch.autograd.grad(out.float().sum(), operands)])
            torch.testing.assert_close(results[1], results[0], rtol=tolerance, atol=tolerance)
        assert not counters["inductor"]["cudagraph_skips"], counters["inductor"]
        """,
        env=NAME,
    )


def test_a_gradient_of_the_mask_alone_is_refused_as_on_cuda(warm_python: PythonRunner) -> None:
    """The memory-efficient kernel keeps sums for its backward only where query, key or value needs them."""
    warm_python(
        """
        import torch
        from torch.nn.attention import SDPBackend, sdpa_kernel
        from torch.nn.functional import scaled_dot_product_attention as attention

        def gradient(batch, heads, device="cuda"):
            torch.manual_seed(0)
            parts = [torch.randn(batch, heads, 5, 8).to(device) for _ in range(3)]
            bias = torch.randn(batch, heads, 5, 5).to(device).requires_grad_()
            attention(*parts, attn_mask=bias).square().sum().backward()
            return bias.grad

        for sizes, words in {
            (2, 4): "LSE is not correctly aligned (strideH)",
            (2, 1): "LSE is not correctly aligned (strideB)",
            (1, 1): "SDPBackend.MATH",  # where CUDA reads memory that is not there
        }.items():
            try:
                gradient(*sizes)
            except RuntimeError as error:
                assert words in str(error), error
            else:
                raise AssertionError(words)
            with sdpa_kernel(SDPBackend.MATH):
                torch.testing.assert_close(gradient(*sizes).cpu(), gradient(*sizes, device="cpu"))
        """,
        NAME,
    )
