"""torch.use_deterministic_algorithms refuses what it documents, on chips that are not deterministic."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.conftest import PythonRunner
from torch_loom.torch_version import minor_of

PROGRAMS = Path(__file__).parent / "programs" / "determinism"

Use = Callable[[], object]


def leaf(*shape: int) -> Tensor:
    return torch.rand(shape, device="loom", requires_grad=True)


def backward(function: Callable[[Tensor], Tensor], *shape: int) -> Use:
    return lambda: function(leaf(*shape)).sum().backward()


def resampled(mode: str, *shape: int) -> Use:
    return backward(lambda x: functional.interpolate(x, scale_factor=2, mode=mode), *shape)


def whole(*values: int) -> Tensor:
    return torch.tensor(values, device="loom")


def bag(mode: str) -> Use:
    return backward(lambda w: functional.embedding_bag(whole(0, 2), w, whole(0), mode=mode), 4, 3)


def unpooled() -> object:
    return functional.max_unpool2d(leaf(1, 1, 2, 2), torch.arange(4, device="loom").view(1, 1, 2, 2), 2)


def counted() -> object:
    return torch.bincount(whole(0, 1), weights=torch.ones(2, device="loom"))


def spelled() -> None:
    lengths = torch.tensor([4]), torch.tensor([2])
    loss = functional.ctc_loss(leaf(4, 1, 3).log_softmax(-1), whole(1, 2).view(1, 2), *lengths)
    loss.backward()


REFUSED: dict[str, tuple[Use, str]] = {
    "avg_pool3d": (
        backward(lambda x: functional.avg_pool3d(x, 2), 1, 1, 2, 2, 2),
        "avg_pool3d_backward_cuda",
    ),
    "adaptive_avg_pool2d": (
        backward(lambda x: functional.adaptive_avg_pool2d(x, 2), 1, 1, 4, 4),
        "adaptive_avg_pool2d_backward_cuda",
    ),
    "adaptive_max_pool2d": (
        backward(lambda x: functional.adaptive_max_pool2d(x, 2), 1, 1, 4, 4),
        "adaptive_max_pool2d_backward_cuda",
    ),
    "linear": (resampled("linear", 1, 1, 4), "upsample_linear1d_backward_out_cuda"),
    # Until 2.14; later versions compute it in another way where algorithms must be deterministic.
    **(
        {"bicubic": (resampled("bicubic", 1, 1, 4, 4), "upsample_bicubic2d_backward_out_cuda")}
        if minor_of(torch.__version__) < (2, 15)
        else {}
    ),
    "reflection": (
        backward(lambda x: functional.pad(x, (1, 1), "reflect"), 1, 1, 4),
        "reflection_pad1d_backward_out_cuda",
    ),
    "grid_sample": (
        backward(lambda x: functional.grid_sample(x, torch.zeros(1, 2, 2, 2, device="loom")), 1, 1, 4, 4),
        "grid_sampler_2d_backward_cuda",
    ),
    "nll_loss2d": (
        lambda: functional.nll_loss(leaf(1, 3, 2, 2), torch.zeros(1, 2, 2, dtype=torch.long, device="loom")),
        "nll_loss2d_forward_out_cuda_template",
    ),
    "ctc_loss": (spelled, "ctc_loss_backward_gpu"),
    "embedding_bag of maxima": (bag("max"), "embedding_bag_backward_cuda_max"),
    "max_unpool2d": (unpooled, "max_unpooling2d_forward_out"),
    "put_": (lambda: leaf(3).detach().put_(whole(0), torch.ones(1, device="loom")), "put_"),
    "bincount with weights": (counted, "_bincount_cuda"),
    "histc": (lambda: torch.histc(leaf(4).detach()), "_histc_cuda with floating point input"),
    "median with indices": (lambda: leaf(4).median(0), "median CUDA with indices output"),
    "cumsum": (lambda: leaf(4).cumsum(0), "cumsum_cuda_kernel"),
    "products by index": (
        lambda: torch.ones(3, device="loom").scatter_reduce_(
            0, whole(0, 0), torch.ones(2, device="loom"), "prod"
        ),
        "scatter_reduce_cuda_prod_",
    ),
}
TAKEN: dict[str, Use] = {
    "cumsum of numbers": lambda: whole(1, 2).cumsum(0),
    "bincount": lambda: torch.bincount(whole(0, 1)),
    "median": lambda: leaf(4).median(),
    "embedding_bag of sums": bag("sum"),
    "sums by index": lambda: torch.ones(3, device="loom").scatter_reduce_(
        0, whole(0, 0), torch.ones(2, device="loom"), "sum"
    ),
    "trilinear, which PyTorch makes of other ops then": resampled("trilinear", 1, 1, 2, 2, 2),
    "matrix product": lambda: leaf(2, 2) @ leaf(2, 2),
}


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    yield
    torch.use_deterministic_algorithms(False)


@pytest.mark.parametrize("name", REFUSED)
def test_what_cuda_refuses_is_refused(name: str) -> None:
    use, kernel = REFUSED[name]
    use()
    torch.use_deterministic_algorithms(True)
    with pytest.raises(RuntimeError, match=f"^{kernel} does not have a deterministic implementation"):
        use()
    torch.use_deterministic_algorithms(True, warn_only=True)
    with pytest.warns(UserWarning, match=f"^{kernel} does not have a deterministic implementation"):
        use()


@pytest.mark.parametrize("name", TAKEN)
def test_what_is_deterministic_runs(name: str) -> None:
    torch.use_deterministic_algorithms(True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        TAKEN[name]()


def test_on_a_side_stream_and_in_a_capture() -> None:
    x = torch.ones(4, device="loom")
    torch.use_deterministic_algorithms(True)
    with torch.loom.stream(torch.loom.Stream()), pytest.raises(RuntimeError, match="cumsum_cuda_kernel"):
        x.cumsum(0)
    with pytest.raises(RuntimeError, match="cumsum_cuda_kernel"), torch.loom.graph(torch.loom.LoomGraph()):
        x.cumsum(0)


@pytest.mark.slow
def test_a_chip_that_claims_determinism_raises_nothing(warm_python: PythonRunner) -> None:
    warm_python(
        PROGRAMS / "a_chip_that_claims_determinism_raises_nothing.py", {"TORCH_LOOM_CHIP": "wormhole_b0"}
    )


@pytest.mark.slow
def test_matrix_products_under_cudas_name(warm_python: PythonRunner) -> None:
    name = {"TORCH_LOOM_DEVICE_NAME": "cuda"}
    assert (
        warm_python(PROGRAMS / "matrix_products_under_cudas_name.py", name).stdout.split() == ["refused"] * 3
    )
    assert (
        warm_python(
            PROGRAMS / "matrix_products_under_cudas_name.py", {**name, "CUBLAS_WORKSPACE_CONFIG": ":4096:8"}
        ).stdout
        == ""
    )
