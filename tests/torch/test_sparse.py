"""COO and CSR tensors on the device; what is not there says so."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor


@pytest.fixture(autouse=True)
def without_beta_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


DENSE = torch.tensor([[0.0, 2.0, 0.0], [3.0, 0.0, 4.0]])


def test_coo_from_parts_and_back() -> None:
    x = torch.sparse_coo_tensor([[0, 1, 1, 0], [1, 0, 2, 1]], [1.0, 3.0, 4.0, 1.0], (2, 3), device="loom")
    assert x.device == torch.device("loom:0")
    assert not x.is_coalesced()
    assert x._nnz() == 4
    assert torch.equal(x.to_dense().cpu(), DENSE)
    x = x.coalesce()
    assert x.indices().tolist() == [[0, 1, 1], [1, 0, 2]]
    assert x.values().tolist() == [2, 3, 4]
    assert x.values().is_loom
    assert "loom:0" in repr(x)


def test_csr_from_parts_and_back() -> None:
    x = torch.sparse_csr_tensor([0, 1, 3], [1, 0, 2], [2.0, 3.0, 4.0], (2, 3), device="loom")
    assert x.crow_indices().is_loom
    assert x.col_indices().tolist() == [1, 0, 2]
    assert x.values().tolist() == [2, 3, 4]
    assert torch.equal(x.to_dense().cpu(), DENSE)


@pytest.mark.parametrize("sparse", [Tensor.to_sparse, Tensor.to_sparse_csr], ids=["coo", "csr"])
def test_to_and_from_dense_and_matmul(sparse: Callable[[Tensor], Tensor]) -> None:
    expected = sparse(DENSE)
    x = sparse(DENSE.to("loom"))
    assert x.layout == expected.layout
    assert x.device.type == "loom"
    assert torch.equal(x.to_dense().cpu(), DENSE)
    other = torch.arange(6.0).view(3, 2)
    assert torch.equal((x @ other.to("loom")).cpu(), DENSE @ other)
    assert torch.equal((x @ other[:, 0].to("loom")).cpu(), DENSE @ other[:, 0])


@pytest.mark.parametrize("source", ["cpu", "loom:0"])
@pytest.mark.parametrize("destination", ["cpu", "loom:0", "loom:1"])
def test_coo_moves_between_devices(source: str, destination: str) -> None:
    x = DENSE.to(source).to_sparse().to(destination)
    assert x.device == torch.device(destination)
    assert x._values().device == torch.device(destination)
    assert torch.equal(x.to_dense().cpu(), DENSE)


@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_empty_ones(layout: torch.layout) -> None:
    for make in (torch.empty, torch.zeros):
        made = make(2, 3, layout=layout, device="loom:1")
        assert (made.layout, made.device, made._nnz()) == (layout, torch.device("loom:1"), 0)
        assert made.to_dense().tolist() == [[0.0] * 3] * 2


def test_gradient_through_sparse_matmul() -> None:
    x = DENSE.to("loom").to_sparse().requires_grad_()
    y = torch.ones(3, 2, device="loom", requires_grad=True)
    torch.sparse.mm(x, y).sum().backward()
    assert y.grad is not None
    assert x.grad is not None
    assert torch.equal(y.grad.cpu(), DENSE.sum(0)[:, None].expand(3, 2))
    assert torch.equal(x.grad.to_dense().cpu(), (DENSE != 0) * 2.0)


def test_sparse_gradient_of_an_embedding() -> None:
    embedding = torch.nn.Embedding(5, 2, sparse=True, device="loom")
    embedding(torch.tensor([1, 3, 1], device="loom")).sum().backward()
    grad = embedding.weight.grad
    assert grad is not None
    assert grad.is_sparse
    assert grad.to_dense()[:, 0].tolist() == [0, 2, 0, 1, 0]


@pytest.mark.parametrize(
    ("op", "name"),
    [
        (lambda x: torch.quantize_per_tensor(x, 0.1, 0, torch.qint8), "aten::quantize_per_tensor"),
        (
            lambda x: torch.quantize_per_channel(x, torch.ones(2), torch.zeros(2), 0, torch.qint8),
            "aten::quantize_per_channel",
        ),
        (lambda x: torch.nested.nested_tensor([x, x]) + 1, "aten::"),
        (lambda x: x.to_mkldnn(), "aten::to_mkldnn"),
    ],
    ids=["quantize_per_tensor", "quantize_per_channel", "nested", "mkldnn"],
)
def test_what_is_not_there_names_the_op(op: Callable[[Tensor], object], name: str) -> None:
    with pytest.raises(NotImplementedError, match=name):
        op(DENSE.to("loom"))
