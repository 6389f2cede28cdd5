"""Numbers, dtypes and determinism: where CUDA's kernels differ from the CPU's."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "numbers"


@pytest.mark.report("pytorch/pytorch#116968", "the remainder of an integer by zero")
def test_remainder_by_zero(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "remainder_by_zero.py")


@pytest.mark.report("pytorch/pytorch#186618", "a quotient by a number is a product by its reciprocal")
def test_quotient_by_a_number(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "quotient_by_a_number.py")


@pytest.mark.report("pytorch/pytorch#140347", "NaN as an integer")
def test_nan_as_an_integer(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "nan_as_an_integer.py")


@pytest.mark.report("pytorch/pytorch#127196", "which of equal values `topk` takes first")
def test_equal_values_of_topk(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "equal_values_of_topk.py")


@pytest.mark.report("pytorch/pytorch#170168", "`linspace` of integers")
def test_linspace_of_integers(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "linspace_of_integers.py")


@pytest.mark.report("pytorch/pytorch#181805", "`fmax` of integers into uint8")
def test_a_result_that_does_not_fit(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_result_that_does_not_fit.py")


@pytest.mark.report("pytorch/pytorch#2391", "sums of float16 are kept in float32")
def test_sums_of_half_precision(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "sums_of_half_precision.py")


@pytest.mark.report("pytorch/pytorch#171034", "a product of bfloat16 with infinities")
def test_products_with_infinities(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "products_with_infinities.py")


@pytest.mark.slow
@pytest.mark.report("pytorch/pytorch#141544", "tensors of more than 2**31 elements")
def test_indices_beyond_32_bits(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "indices_beyond_32_bits.py")


@pytest.mark.report("pytorch/pytorch#112583", "autocast: a forward without gradients, then one with them")
@pytest.mark.report("pytorch/pytorch#105211", "autocast caches weights that were cast without gradients")
@pytest.mark.report("pytorch/pytorch#142234", "autocast: the output of a layer has lost its graph")
def test_autocast_without_gradients_first(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "autocast_without_gradients_first.py")


@pytest.mark.report("espnet/espnet#2362", "`unscale_` twice in a step")
def test_unscaled_twice(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "unscaled_twice.py")


@pytest.mark.report("huggingface/accelerate#328", "a step of an optimizer without gradients")
def test_a_step_without_gradients(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "a_step_without_gradients.py")


@pytest.mark.report(
    "pytorch/pytorch:torch/amp/grad_scaler.py", "an infinite gradient: the step is left out, the scale halved"
)
def test_an_infinite_gradient(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "an_infinite_gradient.py")


@pytest.mark.report(
    "pytorch/pytorch#38487", "a function of one's own under autocast needs `custom_fwd` and `custom_bwd`"
)
def test_functions_that_know_of_autocast(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "functions_that_know_of_autocast.py")


@pytest.mark.report("pytorch/pytorch#38487", "without them half meets float: the words")
def test_functions_that_do_not(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "functions_that_do_not.py")


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
    fork_cuda(PROGRAMS / "ops_in_deterministic_mode.py", given=(REFUSING, ALLOWED))


@pytest.mark.report(
    "jbloomAus/SAELens#137", "matrix products in deterministic mode need `CUBLAS_WORKSPACE_CONFIG`"
)
@pytest.mark.parametrize("is_set", [False, True])
def test_products_in_deterministic_mode(fork_cuda: PythonRunner, is_set: bool) -> None:
    fork_cuda(
        PROGRAMS / "products_in_deterministic_mode.py",
        {"CUBLAS_WORKSPACE_CONFIG": ":4096:8"} if is_set else {},
        given=is_set,
    )
