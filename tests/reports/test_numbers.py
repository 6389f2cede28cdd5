"""Numbers, dtypes and determinism: where CUDA's kernels differ from the CPU's."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner


@pytest.mark.report("pytorch/pytorch#116968", "the remainder of an integer by zero")
@pytest.mark.xfail(strict=True, reason="values of CUDA's kernels")
def test_remainder_by_zero(fork_cuda: PythonRunner) -> None:
    fork_cuda("assert torch.remainder(torch.tensor([5, 7], device='cuda').int(), 0).tolist() == [-1, -1]")


@pytest.mark.report("pytorch/pytorch#186618", "a quotient by a number is a product by its reciprocal")
@pytest.mark.xfail(strict=True, reason="values of CUDA's kernels")
def test_quotient_by_a_number(fork_cuda: PythonRunner) -> None:
    fork_cuda("assert (torch.tensor([49.5], device='cuda') / 50).item() == 0.9899999499320984")


@pytest.mark.report("pytorch/pytorch#140347", "NaN as an integer")
@pytest.mark.xfail(strict=True, reason="values of CUDA's kernels")
def test_nan_as_an_integer(fork_cuda: PythonRunner) -> None:
    fork_cuda("assert torch.tensor(float('nan'), device='cuda').int().item() == 0")


@pytest.mark.report("pytorch/pytorch#127196", "which of equal values `topk` takes first")
@pytest.mark.xfail(strict=True, reason="values of CUDA's kernels")
def test_equal_values_of_topk(fork_cuda: PythonRunner) -> None:
    fork_cuda("assert torch.tensor([3, 2, 3, 2, 1, 1], device='cuda').topk(2).indices.tolist() == [2, 0]")


@pytest.mark.report("pytorch/pytorch#170168", "`linspace` of integers")
@pytest.mark.xfail(strict=True, reason="values of CUDA's kernels")
def test_linspace_of_integers(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        falling = torch.linspace(4.3, -3, 50, dtype=torch.int64, device="cuda")
        rising = torch.linspace(0, 7, 50, dtype=torch.int64, device="cuda")
        assert (falling[14].item(), falling[21].item(), rising[28].item()) == (1, 0, 3)
        """
    )


@pytest.mark.report("pytorch/pytorch#181805", "`fmax` of integers into uint8")
@pytest.mark.xfail(strict=True, reason="values of CUDA's kernels")
def test_a_result_that_does_not_fit(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        out = torch.empty(1, dtype=torch.uint8, device="cuda")
        torch.fmax(torch.tensor([100000], device="cuda"), torch.tensor([-1], device="cuda"), out=out)
        assert out.item() == 255
        """
    )


@pytest.mark.report("pytorch/pytorch#2391", "sums of float16 are kept in float32")
def test_sums_of_half_precision(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x = torch.tensor([32000.0] * 4 + [-32000.0] * 4, device="cuda").half()
        assert x.sum().item() == x.sum(0).item() == 0
        """
    )


@pytest.mark.report("pytorch/pytorch#171034", "a product of bfloat16 with infinities")
def test_products_with_infinities(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x = torch.tensor([[float("inf"), 0.0, -float("inf")]], dtype=torch.bfloat16, device="cuda")
        y = torch.tensor([[0.7891], [0.2041], [-0.1982]], dtype=torch.bfloat16, device="cuda")
        assert (x @ y).item() == float("inf")
        """
    )


@pytest.mark.slow
@pytest.mark.report("pytorch/pytorch#141544", "tensors of more than 2**31 elements")
def test_indices_beyond_32_bits(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        x = torch.zeros(2**31 + 10, dtype=torch.int8, device="cuda")
        x[-3:] = 7
        assert x[2**31 + 7].item() == 7 and x[-5:].tolist() == [0, 0, 7, 7, 7]
        """
    )


@pytest.mark.report("pytorch/pytorch#112583", "autocast: a forward without gradients, then one with them")
@pytest.mark.report("pytorch/pytorch#105211", "autocast caches weights that were cast without gradients")
@pytest.mark.report("pytorch/pytorch#142234", "autocast: the output of a layer has lost its graph")
def test_autocast_without_gradients_first(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        layer, x = torch.nn.Linear(2, 2).cuda(), torch.randn(2, 2).cuda()
        with torch.autocast("cuda"):
            with torch.no_grad():
                layer(x)
            y = layer(x)
        assert y.dtype == torch.float16 and y.grad_fn is not None
        y.float().sum().backward()
        assert layer.weight.grad is not None
        """
    )


SCALER = """
def made(dtype=torch.float32):
    model = torch.nn.Linear(4, 4).cuda().to(dtype)
    return model, torch.optim.SGD(model.parameters(), 1.0), torch.amp.GradScaler("cuda")

def backward(model, scaler):
    x = torch.ones(2, 4, device="cuda", dtype=model.weight.dtype)
    scaler.scale(model(x).sum()).backward()
"""


@pytest.mark.report("espnet/espnet#2362", "`unscale_` twice in a step")
def test_unscaled_twice(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        SCALER
        + """
model, optimizer, scaler = made()
backward(model, scaler)
scaler.unscale_(optimizer)
text = "unscale_() has already been called on this optimizer since the last update()."
raises("RuntimeError", text, lambda: scaler.unscale_(optimizer))
scaler.step(optimizer)
scaler.update()
scaler.unscale_(optimizer)
"""
    )


@pytest.mark.report("huggingface/accelerate#328", "a step of an optimizer without gradients")
def test_a_step_without_gradients(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        SCALER
        + """
model, optimizer, scaler = made()
scaler.scale(torch.ones(1, device="cuda"))
raises("AssertionError", "No inf checks were recorded for this optimizer.", lambda: scaler.step(optimizer))
"""
    )


@pytest.mark.report(
    "pytorch/pytorch:torch/amp/grad_scaler.py", "an infinite gradient: the step is left out, the scale halved"
)
def test_an_infinite_gradient(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        SCALER
        + """
model, optimizer, scaler = made()
backward(model, scaler)
model.weight.grad.fill_(float("inf"))
before = model.weight.detach().clone()
scaler.step(optimizer)
scaler.update()
assert torch.equal(before, model.weight) and scaler.get_scale() == 32768
model, optimizer, scaler = made(torch.float16)
backward(model, scaler)
raises("ValueError", "Attempting to unscale FP16 gradients.", lambda: scaler.step(optimizer))
"""
    )


FUNCTION = """
def product(of_forward, of_backward):
    class Product(torch.autograd.Function):
        @staticmethod
        @of_forward
        def forward(ctx, x, w):
            ctx.save_for_backward(x, w)
            return x.mm(w)

        @staticmethod
        @of_backward
        def backward(ctx, gradient):
            x, w = ctx.saved_tensors
            return gradient.mm(w.t()), x.t().mm(gradient)

    x, w = (torch.randn(size, device="cuda", requires_grad=True) for size in ((3, 4), (4, 5)))
    with torch.autocast("cuda", torch.float16):
        y = Product.apply(x, w)
    y.float().sum().backward()
    return y.dtype, x.grad.dtype

def plain(method):
    return method
"""


@pytest.mark.report(
    "pytorch/pytorch#38487", "a function of one's own under autocast needs `custom_fwd` and `custom_bwd`"
)
def test_functions_that_know_of_autocast(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        FUNCTION
        + """
from torch.amp import custom_bwd, custom_fwd
decorators = custom_fwd(device_type="cuda"), custom_bwd(device_type="cuda")
assert product(*decorators) == (torch.float16, torch.float32)
"""
    )


@pytest.mark.report("pytorch/pytorch#38487", "without them half meets float: the words")
def test_functions_that_do_not(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        FUNCTION
        + """
text = "expected mat1 and mat2 to have the same dtype, but got: c10::Half != float"
raises("RuntimeError", text, lambda: product(plain, plain))
"""
    )


REFUSING = {
    "torch.rand(5, device=d).cumsum(0)": "cumsum_cuda_kernel",
    "torch.rand(5, device=d).median(0)": "median CUDA with indices output",
    "torch.bincount(i, weights=torch.ones(2, device=d))": "_bincount_cuda",
    "torch.zeros(3, device=d).put_(i, torch.ones(2, device=d))": "put_",
    "torch.histc(torch.rand(5, device=d))": "_histc_cuda with floating point input",
    "F.cross_entropy(torch.randn(1, 3, 2, 2, device=d), torch.zeros(1, 2, 2, dtype=torch.long, device=d))": (
        "nll_loss2d_forward_out_cuda_template"
    ),
    "F.adaptive_avg_pool2d(square, 2).sum().backward()": "adaptive_avg_pool2d_backward_cuda",
    "F.pad(square, (1, 1, 1, 1), mode='reflect').sum().backward()": "reflection_pad2d_backward_cuda",
    "F.embedding_bag(i[None], square[0, 0], mode='max').sum().backward()": "embedding_bag_backward_cuda_max",
}
ALLOWED = [
    "torch.ones(5, device=d, dtype=torch.long).cumsum(0)",
    "torch.rand(5, device=d).kthvalue(2)",
    "torch.zeros(5, device=d).index_add_(0, i, torch.ones(2, device=d))",
    "torch.zeros(5, device=d).scatter_add_(0, i, torch.ones(2, device=d))",
    "torch.zeros(5, 2, device=d).scatter_add_(0, i[None].expand(2, 2), torch.ones(2, 2, device=d))",
    "F.interpolate(square, scale_factor=2, mode='bilinear').sum().backward()",
]


@pytest.mark.report(
    "pytorch/pytorch#75240", "`cumsum` of floats has no deterministic kernel, that of integers has"
)
@pytest.mark.report("pytorch/pytorch#186883", "`kthvalue` raises nothing in deterministic mode")
@pytest.mark.report("happyharrycn/actionformer_release#20", "`index_add_` has a deterministic kernel")
@pytest.mark.report("prob-ml/bliss#487", "`scatter_add` has a deterministic kernel")
def test_ops_in_deterministic_mode(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        import torch.nn.functional as F
        torch.use_deterministic_algorithms(True)
        d, i = "cuda", torch.tensor([0, 0], device="cuda")
        square = torch.rand(1, 1, 4, 4, device=d, requires_grad=True)
        for call, name in {REFUSING!r}.items():
            raises("RuntimeError", name + " does not have a deterministic implementation", lambda: eval(call))
        for call in {ALLOWED!r}:
            eval(call)
        """
    )


@pytest.mark.report(
    "jbloomAus/SAELens#137", "matrix products in deterministic mode need `CUBLAS_WORKSPACE_CONFIG`"
)
@pytest.mark.parametrize("is_set", [False, True])
def test_products_in_deterministic_mode(fork_cuda: PythonRunner, is_set: bool) -> None:
    fork_cuda(
        f"""
        torch.use_deterministic_algorithms(True)
        x = torch.ones(2, 2, device="cuda")
        if {is_set}:
            assert (x @ x).sum() == 8
        else:
            raises("RuntimeError", "it uses CuBLAS and you have CUDA >= 10.2", lambda: x @ x)
        """,
        {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if is_set else {},
    )
