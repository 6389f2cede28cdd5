"""Textures and surfaces: interpolation against PyTorch's `grid_sample`, and each element where it belongs."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch.nn.functional import grid_sample

from tests.kernels.cuda_cpp.test_thrust import library_of, pointer

pytestmark = pytest.mark.long
SIZE = 8  # a power of two, so that coordinates are exact in each unit
WRAP, CLAMP, MIRROR, BORDER = range(4)
POINT, LINEAR = range(2)


@pytest.fixture(scope="module", params=["", "--loom-checked"])
def program(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    options = [request.param] if request.param else []
    library = library_of("textures", tmp_path_factory.mktemp("textures"), *options)
    for name in ("sampled", "formats", "dimensions", "surfaces", "refusals"):
        getattr(library, name).restype = ctypes.c_char_p
    return library


def expected(image: torch.Tensor, at: torch.Tensor, mode: int, filter: int) -> torch.Tensor:
    """Return what PyTorch interpolates at places in elements: [n, 2], x first."""
    if mode == WRAP:  # copies of the image beside it
        image, at = image.repeat(5, 5), at + 2 * SIZE
    size = image.shape[0]
    padding = {WRAP: "zeros", CLAMP: "border", MIRROR: "reflection", BORDER: "zeros"}[mode]
    grid = (at / size * 2 - 1).reshape(1, 1, -1, 2)
    name = "bilinear" if filter == LINEAR else "nearest"
    found = grid_sample(image[None, None], grid, name, padding, align_corners=False)
    return found.reshape(-1)


@pytest.mark.parametrize("filter", [POINT, LINEAR])
@pytest.mark.parametrize(
    ("mode", "is_normalized", "has_pitch"),
    [(CLAMP, 0, 0), (CLAMP, 1, 1), (BORDER, 0, 1), (BORDER, 1, 0), (WRAP, 1, 0), (MIRROR, 1, 0)],
)
def test_interpolation_is_that_of_grid_sample(
    program: ctypes.CDLL, filter: int, mode: int, is_normalized: int, has_pitch: int
) -> None:
    torch.manual_seed(0)
    image = torch.randn(SIZE, SIZE)
    # Whole steps of an interpolation's weight; an odd number of them is never between two elements.
    at = (torch.randint(-SIZE * 128, SIZE * 384, (500, 2)) * 2 + 1) / 512
    if filter == LINEAR:
        at = torch.floor(at * 256) / 256
    out = torch.zeros(len(at))
    given = (at / SIZE if is_normalized else at).contiguous()
    sizes = SIZE, SIZE, pointer(given), len(at)
    assert (
        program.sampled(pointer(image), *sizes, mode, filter, is_normalized, has_pitch, pointer(out)) is None
    )
    torch.testing.assert_close(out, expected(image, at, mode, filter), rtol=1e-5, atol=1e-6)


def test_weights_have_eight_bits(program: ctypes.CDLL) -> None:
    """As the CUDA C++ Programming Guide says of linear filtering: 9-bit fixed point, 8 bits of fraction."""
    image, out = torch.tensor([[0.0, 1.0]]), torch.zeros(1000)
    at = torch.stack([torch.linspace(0.5, 1.5, 1000), torch.full((1000,), 0.5)], 1).contiguous()
    sizes = 2, 1, pointer(at), len(at)
    assert program.sampled(pointer(image), *sizes, CLAMP, LINEAR, 0, 0, pointer(out)) is None
    assert torch.equal(out * 256, (out * 256).round())
    assert (out - (at[:, 0] - 0.5)).abs().max() <= 1 / 512
    assert len(out.unique()) == 257


def test_coordinates_beyond_all_sizes(program: ctypes.CDLL) -> None:
    image, out = torch.tensor([[1.0, 2.0]]), torch.zeros(4)
    far = [[-1e30, 0], [1e30, 0], [float("inf"), 0], [float("-inf"), 0]]
    at = torch.tensor(far)
    assert program.sampled(pointer(image), 2, 1, pointer(at), 4, CLAMP, LINEAR, 0, 0, pointer(out)) is None
    assert out.tolist() == [1, 2, 2, 1]


@pytest.mark.parametrize("name", ["formats", "dimensions", "refusals"])
def test_each_element(program: ctypes.CDLL, name: str) -> None:
    assert getattr(program, name)() is None


def test_surfaces(program: ctypes.CDLL) -> None:
    assert program.surfaces(0) is None


def test_a_surface_that_is_left(program: ctypes.CDLL) -> None:
    assert program.surfaces(1) is None
    torch.zeros(1, device="loom")  # the error was taken
