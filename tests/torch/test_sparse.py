"""COO and CSR tensors on the device; what is not there says so."""

from __future__ import annotations

import threading
import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor

import torch_loom.device as loom

if TYPE_CHECKING:
    from tests.gate import Gate


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


LAYOUTS = {
    torch.sparse_coo: {},
    torch.sparse_csr: {},
    torch.sparse_csc: {},
    torch.sparse_bsr: {"blocksize": (2, 3)},
    torch.sparse_bsc: {"blocksize": (2, 3)},
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_likes_are_made_where_they_are_wanted(layout: torch.layout) -> None:
    x = DENSE.to("loom").to_sparse(layout=layout, **LAYOUTS[layout])
    for device in ("cpu", "meta", "loom:1", "loom:0"):
        made = torch.empty_like(x, device=device, dtype=torch.float64)
        assert (str(made.device), made.layout, made.dtype) == (device, layout, torch.float64)
    assert torch.zeros_like(x, device="cpu").to_dense().tolist() == [[0] * 3] * 2
    if layout != torch.sparse_coo:
        assert torch.full_like(x, 5, device="cpu").values().eq(5).all()


@pytest.mark.parametrize("layout", [layout for layout in LAYOUTS if layout != torch.sparse_coo], ids=str)
def test_indices_that_are_not_there_yet_are_not_checked(gate: Gate, layout: torch.layout) -> None:
    x = DENSE.to("loom").to_sparse(layout=layout, **LAYOUTS[layout])
    by_rows = layout in (torch.sparse_csr, torch.sparse_bsr)
    parts = [x.crow_indices(), x.col_indices()] if by_rows else [x.ccol_indices(), x.row_indices()]
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with torch.sparse.check_sparse_tensor_invariants(), loom.stream(side):
        gate.hold(side)
        with torch.sparse.check_sparse_tensor_invariants(enable=False):
            pending = torch.sparse_compressed_tensor(
                *(part * 1 for part in parts), x.values() * 2, x.shape, layout=layout
            )
        # The product waits for its operand; the indices are there only when the gate is open.
        opener = threading.Timer(0.1, gate.open)
        opener.start()
        doubled = pending * 2.0
        opener.join()
        assert torch.equal(doubled.to_dense().cpu(), DENSE * 4)


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


def test_gradients_of_two_backward_passes_through_an_embedding_add_up() -> None:
    embedding = torch.nn.Embedding(5, 2, sparse=True, device="loom")
    for _ in range(2):
        embedding(torch.tensor([1, 3, 1], device="loom")).sum().backward()
    assert embedding.weight.grad is not None
    assert embedding.weight.grad.to_dense()[:, 0].tolist() == [0, 4, 0, 2, 0]


# What is done with a sparse tensor and another of that layout.
WRITES: dict[str, Callable[[Tensor, Tensor], Tensor]] = {
    "add_": lambda x, y: x.add_(y, alpha=2),
    "sub_": lambda x, y: x.sub_(y),
    "scaled": lambda x, y: x.mul_(3.0).div_(2),
    "unary": lambda x, y: x.neg_(),
    "zeroed": lambda x, y: x.zero_(),
    "copied": lambda x, y: x.copy_(y),
    "out": lambda x, y: torch.add(x, y, out=x),
    "out of another": lambda x, y: torch.mul(x, 2.0, out=y),
    "to itself": lambda x, y: x.add_(x),
}
NOT_ON_CPU = ("sub_", "scaled", "out of another")
"""What the CPU's kernels lack for CSR."""


@pytest.mark.parametrize(
    ("layout", "name"),
    [
        *((torch.sparse_coo, name) for name in WRITES),
        *((torch.sparse_csr, name) for name in WRITES if name not in NOT_ON_CPU),
    ],
)
@pytest.mark.parametrize("where", ["in place", "behind queued work"])
def test_writes_to_sparse_tensors(layout: torch.layout, name: str, where: str) -> None:
    def run(device: str) -> tuple[Tensor, ...]:
        x = DENSE.to(device).to_sparse(layout=layout)
        y = DENSE.flip(0).contiguous().to(device).to_sparse(layout=layout)
        result = WRITES[name](x, y)
        assert result is x or result is y
        return x.to_dense(), y.to_dense()

    expected = run("cpu")
    with torch.loom.stream(torch.loom.Stream() if where != "in place" else torch.loom.default_stream()):
        got = run("loom")
        torch.loom.synchronize()
    for ours, theirs in zip(got, expected, strict=True):
        assert torch.equal(ours.cpu(), theirs)


def test_sparse_tensors_of_another_size_and_state() -> None:
    x = torch.sparse_coo_tensor([[0, 0], [1, 1]], [1.0, 2.0], (2, 2), device="loom")
    x.sparse_resize_((3, 4), 2, 0)
    assert x.shape == (3, 4)
    assert x.to_dense().cpu()[0].tolist() == [0, 3, 0, 0]
    y = torch.zeros(3, 4, device="loom").to_sparse().add_(x)
    assert (y.shape, y._nnz(), y.is_coalesced()) == (x.shape, 2, False)


@pytest.mark.parametrize("source", ["cpu", "loom:0", "loom:1"])
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr], ids=["coo", "csr"])
def test_copies_between_devices_into_sparse_tensors(source: str, layout: torch.layout) -> None:
    target = torch.ones(2, 3, device="loom").to_sparse(layout=layout)
    if layout == torch.sparse_csr:  # as many elements
        target = DENSE.to("loom").to_sparse_csr().mul_(2)
    target.copy_(DENSE.to(source).to_sparse(layout=layout))
    assert target.values().device == torch.device("loom:0")
    assert torch.equal(target.to_dense().cpu(), DENSE)


@pytest.mark.parametrize(
    ("kind", "options"),
    [
        (torch.optim.SparseAdam, {}),
        (torch.optim.SGD, {}),
        (torch.optim.SGD, {"momentum": 0.9}),
        (torch.optim.Adagrad, {}),
    ],
    ids=["SparseAdam", "SGD", "momentum", "Adagrad"],
)
def test_optimizers_with_sparse_gradients(kind: type[torch.optim.Optimizer], options: dict) -> None:
    def trained(device: str) -> Tensor:
        embedding = torch.nn.Embedding.from_pretrained(torch.ones(4, 2), freeze=False, sparse=True)
        optimizer = kind(embedding.to(device).parameters(), lr=0.1, **options)  # type: ignore[call-arg]
        for step in range(3):
            optimizer.zero_grad(set_to_none=step == 1)
            embedding(torch.tensor([step, 3, step], device=device)).square().sum().backward()
            optimizer.step()
        return embedding.weight.detach().cpu()

    torch.testing.assert_close(trained("loom"), trained("cpu"))


def test_gradients_of_csr_products() -> None:
    results = []
    for device in ("cpu", "loom"):
        x = DENSE.to(device).to_sparse_csr().requires_grad_()
        y = torch.arange(6.0, device=device).view(3, 2).requires_grad_()
        (x @ y).square().sum().backward()
        assert x.grad is not None
        assert y.grad is not None
        results.append([x.grad.to_dense().cpu(), y.grad.cpu()])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours, theirs)


def test_what_is_not_there_names_the_op() -> None:
    with pytest.raises(NotImplementedError, match="aten::to_mkldnn"):
        DENSE.to("loom").to_mkldnn()


def test_coordinates_are_checked() -> None:
    values = torch.ones(3, device="loom")
    sorted_ones = torch.tensor([[0, 1, 2], [1, 0, 2]], device="loom")
    options = {"size": (3, 3), "is_coalesced": True, "check_invariants": True}
    assert torch.sparse_coo_tensor(sorted_ones, values, **options).is_coalesced()
    with pytest.raises(RuntimeError, match="is_coalesced"):
        torch.sparse_coo_tensor(sorted_ones.flip(1), values, **options)
