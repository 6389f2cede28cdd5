"""Products by cuBLASLt and what follows them, against torch's."""

from __future__ import annotations

import ctypes

import pytest
import torch
from torch import Tensor
from torch.nn import functional

from tests.kernels.cuda_cpp.test_thrust import library_of, pointer

pytestmark = pytest.mark.long

FLOAT32, BFLOAT16, E4M3 = 0, 14, 28
DTYPES = {FLOAT32: torch.float32, BFLOAT16: torch.bfloat16, E4M3: torch.float8_e4m3fn}
RELU, BIAS, DRELU, BGRAD, GELU, DGELU, AUX, BGRADA, BGRADB = 2, 4, 8, 16, 32, 64, 128, 256, 512
M, N, K = 24, 10, 7


@pytest.fixture(scope="module")
def library(tmp_path_factory: pytest.TempPathFactory) -> ctypes.CDLL:
    program = library_of("blas_lt", tmp_path_factory.mktemp("blas_lt"))
    program.product.restype = ctypes.c_char_p
    return program


class Case:
    """Factors of a batch, and the product that comes of them: matrices are stored by columns."""

    def __init__(self, kind: int, out: int, *, batches: int = 1, turns_a: bool = False) -> None:
        torch.manual_seed(0)
        self.kinds, self.batches, self.turns_a = (kind, out), batches, turns_a
        self.a, self.b = (torch.randn(batches, *sizes).to(DTYPES[kind]) for sizes in ((M, K), (K, N)))
        self.bias, self.aux = torch.randn(M), torch.zeros(batches, N, M)

    def exact(self) -> Tensor:
        return 2 * self.a.float() @ self.b.float()

    def run(
        self,
        library: ctypes.CDLL,
        epilogue: int = 1,
        *,
        beta: float = 0,
        addend: Tensor | None = None,
        bias: Tensor | None = None,
        aux: Tensor | None = None,
        leading: int = M,
        by_rows: bool = False,
        scale: Tensor | None = None,
    ) -> Tensor:
        def stored(x: Tensor) -> Tensor:
            return x.contiguous() if by_rows else x.mT.contiguous()

        a = stored(self.a.mT if self.turns_a else self.a)
        b = stored(self.b)
        d = stored(torch.zeros(self.batches, M, N, dtype=DTYPES[self.kinds[1]]))
        c = None if addend is None else stored(addend)
        given = [None if x is None else pointer(x) for x in (a, b, c, d, bias)]
        count = 0 if bias is None else bias.numel()
        size = 0 if aux is None else aux.numel() * aux.element_size()
        failure = library.product(
            *self.kinds,
            *(M, N, K, self.batches, self.turns_a, by_rows, epilogue),
            ctypes.c_float(beta),
            *given,
            count,
            None if aux is None else pointer(aux),
            ctypes.c_size_t(size),
            ctypes.c_longlong(leading),
            None if scale is None else pointer(scale),
        )
        assert failure is None, failure
        return d if by_rows else d.mT


@pytest.mark.parametrize("turns_a", [False, True])
@pytest.mark.parametrize("by_rows", [False, True])
@pytest.mark.parametrize(("kind", "out"), [(FLOAT32, FLOAT32), (BFLOAT16, BFLOAT16), (BFLOAT16, FLOAT32)])
def test_products(library: ctypes.CDLL, kind: int, out: int, by_rows: bool, turns_a: bool) -> None:
    case = Case(kind, out, batches=3, turns_a=turns_a)
    addend = torch.randn(3, M, N).to(DTYPES[out])
    found = case.run(library, beta=0.5, addend=addend, by_rows=by_rows)
    expected = (case.exact() + 0.5 * addend.float()).to(DTYPES[out])
    torch.testing.assert_close(found, expected, rtol=2e-2 if out == BFLOAT16 else 1e-5, atol=1e-5)


def test_scaled_float8(library: ctypes.CDLL) -> None:
    case = Case(E4M3, FLOAT32)
    found = case.run(library, scale=torch.tensor([0.25]))
    torch.testing.assert_close(found, case.exact() / 4)


def test_biases_and_functions(library: ctypes.CDLL) -> None:
    case = Case(FLOAT32, FLOAT32)
    before = case.exact() + case.bias[:, None]
    torch.testing.assert_close(case.run(library, BIAS, bias=case.bias), before)
    torch.testing.assert_close(case.run(library, RELU | BIAS, bias=case.bias), before.relu())
    found = case.run(library, GELU | AUX | BIAS, bias=case.bias, aux=case.aux)
    torch.testing.assert_close(found, functional.gelu(before, approximate="tanh"))
    torch.testing.assert_close(case.aux.mT, before)


def test_gradients(library: ctypes.CDLL) -> None:
    case = Case(FLOAT32, FLOAT32)
    x = torch.randn(1, M, N, requires_grad=True)
    functional.gelu(x, approximate="tanh").backward(case.exact())
    found = case.run(library, DGELU | AUX | BGRAD, bias=case.bias, aux=x.detach().mT.contiguous())
    torch.testing.assert_close(found, x.grad)
    torch.testing.assert_close(case.bias, found.sum((0, 2)))
    case.run(library, BGRADA, bias=case.bias)
    torch.testing.assert_close(case.bias, case.a.sum((0, 2)))
    of_columns = torch.zeros(N)
    case.run(library, BGRADB, bias=of_columns)
    torch.testing.assert_close(of_columns, case.b.sum((0, 1)))


def test_a_mask_of_signs(library: ctypes.CDLL) -> None:
    case, leading = Case(FLOAT32, FLOAT32, batches=1), 128
    mask = torch.zeros(N, leading // 8, dtype=torch.uint8)
    exact = case.exact()
    found = case.run(library, RELU | AUX, aux=mask, leading=leading)
    torch.testing.assert_close(found, exact.relu())
    assert int(mask[0, 0]) == sum(1 << i for i in range(8) if exact[0, i, 0] > 0)
    assert mask[:, M // 8 :].eq(0).all()
    found = case.run(library, DRELU | AUX, aux=mask, leading=leading)
    torch.testing.assert_close(found, exact * (exact > 0))
