"""Lazy device memory: what moves, when, and that nobody notices: addresses, views, threads, streams, errors.

Needs the lazy policy for the whole process: test_lazy_policy.py runs this file so.
"""

from __future__ import annotations

import copy
import io
import pickle
import threading
from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from tests.torch.lazy_figures import Figures, figures, on_device, only_under_the_lazy_policy, rounded, since

only_under_the_lazy_policy()

MIB = 1 << 20
Fill = Callable[[Tensor], Tensor]


def test_results_of_ops_never_take_host_memory() -> None:
    a, b = on_device(torch.ones(100, 100, device="loom")), on_device(torch.ones(100, 100, device="loom"))
    before = figures()
    product = a @ b
    out = torch.empty(100, 100, device="loom")
    torch.mm(a, b, out=out)
    grown = torch.add(a, b, out=torch.empty(0, device="loom"))
    halves = torch.empty(100, 100, device="loom")
    halves[:50].copy_(a[:50])
    assert since(before) == Figures(4 * rounded(40_000), moved=80_000, moves=2)
    assert product[0, 0].item() == out[3, 3].item() == 100
    assert (grown[1, 1].item(), halves[49, 0].item()) == (2, 1)


@pytest.mark.parametrize("clone", [torch.clone, copy.deepcopy, lambda x: torch.zeros_like(x).copy_(x)])
def test_copies_within_the_device_are_ops(clone: Fill) -> None:
    x = torch.arange(7.0, device="loom")
    before = figures()
    y = clone(x)
    assert since(before).allocated == 2 * 512
    x.add_(1)
    assert y.tolist() == [0, 1, 2, 3, 4, 5, 6]


def test_between_devices() -> None:
    x = torch.arange(7.0, device="loom:0")
    first, second = figures(0), figures(1)
    y = x.to("loom:1")
    assert (since(first, 0).allocated, since(second, 1).allocated) == (512, 512)
    assert y.tolist() == x.tolist()
    before = figures(1)
    z = torch.zeros(3, device="loom:1")
    assert since(before, 1) == Figures(host=12, pending=1)
    assert z.device == torch.device("loom:1")


def test_the_address_does_not_change() -> None:
    x = torch.ones(10, device="loom")
    view = x[2:]
    address = view.data_ptr()
    x.add_(1)
    x.fill_(3)
    view.copy_(torch.zeros(8))
    assert (view.data_ptr(), x.data_ptr()) == (address, address - 8)
    assert x.untyped_storage().data_ptr() == x.data_ptr()
    y = torch.ones(10, device="loom")
    address = y.untyped_storage().data_ptr()
    assert (y * 2).tolist() == [2] * 10
    assert y.data_ptr() == address


def test_views_share_one_move() -> None:
    x = torch.arange(12.0, device="loom")
    rows, columns, tail = x.view(3, 4), x.as_strided((4, 3), (1, 4)), x[6:]
    alias = torch.empty(0, device="loom").set_(x)
    before = figures()
    rows[1].fill_(0)
    assert since(before).moves == 0
    (columns * 2 + alias.view(4, 3)).sum()
    assert since(before).moves == 1
    tail.mul_(10)
    rows[0].fill_(-1)
    assert alias.tolist() == [-1, -1, -1, -1, 0, 0, 0, 0, 80, 90, 100, 110]
    assert since(before).moves == 1


def test_resize() -> None:
    x = torch.arange(4.0, device="loom")
    before = figures()
    x.resize_(2, 3)
    assert since(before) == Figures(host=8)
    x.view(-1)[4:].fill_(9)
    assert x.tolist() == [[0, 1, 2], [3, 9, 9]]
    x.resize_(2)
    assert x.tolist() == [0, 1]
    storage = x.untyped_storage()
    storage.resize_(4)
    assert since(before) == Figures(host=-12)
    storage.resize_(0)
    assert since(before) == Figures(host=-16, pending=-1)
    storage.resize_(8)
    assert since(before) == Figures(host=-16)
    x.fill_(5)
    assert (x + 1).tolist() == [6, 6]
    assert since(before).pending == -1
    x.resize_(1000)
    assert since(before).pending == -1
    assert x[:2].tolist() == [5, 5]


def test_a_storage_that_is_too_small_is_told() -> None:
    x = torch.ones(4, device="loom")
    x.untyped_storage().resize_(0)
    for use in (lambda: x + 1, lambda: x.fill_(1), lambda: x.normal_()):
        with pytest.raises(RuntimeError, match="no memory"):
            use()


def test_results_that_a_factory_sizes() -> None:
    before = figures()
    out = torch.empty(0, device="loom")
    torch.arange(5, out=out)
    assert since(before) == Figures(host=20, pending=1)
    torch.arange(50, out=out.resize_(0))
    torch.eye(3, out=torch.empty(0, device="loom"))
    assert since(before) == Figures(host=200, pending=1)
    assert out.sum().item() == 1225
    used = on_device(torch.empty(3, device="loom"))
    assert torch.arange(3, out=used).tolist() == [0, 1, 2]


def test_errors_are_those_of_the_device() -> None:
    with pytest.raises(RuntimeError, match="must match the size"):
        torch.empty(2, device="loom").copy_(torch.ones(3))
    with pytest.raises(RuntimeError, match="expects std >= 0"):
        torch.empty(2, device="loom").normal_(0, -1)
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"):
        torch.ones(2, device="loom") + torch.ones(2)


def test_storages() -> None:
    before = figures()
    storage = torch.UntypedStorage(8, device="loom")
    assert since(before) == Figures(pending=1)
    storage.fill_(7)
    storage[2] = 1
    assert storage.cpu().tolist() == [7, 7, 1, 7, 7, 7, 7, 7]
    assert storage[2] == 1
    other = torch.UntypedStorage([1, 2, 3]).to(device="loom")
    assert other.cpu().tolist() == [1, 2, 3]
    x = torch.empty(0, dtype=torch.uint8, device="loom").set_(storage)
    assert (x + 1).tolist() == [8, 8, 2, 8, 8, 8, 8, 8]
    taken = torch.arange(2.0, device="loom")
    data = taken.data
    data.add_(1)
    taken.set_()
    assert (taken.numel(), data.tolist()) == (0, [1, 2])


def test_copy_on_write() -> None:
    x = torch.arange(4.0, device="loom")
    clone = torch._lazy_clone(x)
    assert torch._C._is_cow_tensor(clone)
    clone.add_(1)
    assert (x.tolist(), clone.tolist()) == ([0, 1, 2, 3], [1, 2, 3, 4])
    again = torch._lazy_clone(x)
    again.untyped_storage().resize_(32)
    again.fill_(8)
    assert x.tolist() == [0, 1, 2, 3]


def test_serialization() -> None:
    model = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("loom")
    x = torch.randn(5, 3, device="loom")
    model(x)
    saved = io.BytesIO()
    torch.save({"model": model.state_dict(), "unmaterialised": torch.arange(5, device="loom")}, saved)
    saved.seek(0)
    loaded = torch.load(saved)
    assert loaded["unmaterialised"].device.type == "loom"
    assert loaded["unmaterialised"].tolist() == [0, 1, 2, 3, 4]
    other = nn.Sequential(nn.Linear(3, 4), nn.BatchNorm1d(4)).to("loom")
    other.load_state_dict(loaded["model"])
    third = copy.deepcopy(other)
    fourth = pickle.loads(pickle.dumps(third))
    for each in (other, third, fourth):
        assert torch.equal(each.eval()(x).cpu(), model.eval()(x).cpu())


def test_moving_a_model_takes_nothing_until_it_runs() -> None:
    before = figures()
    model = nn.Linear(64, 64).to("loom")
    assert since(before) == Figures(host=4 * 65 * 64, pending=2)
    model(torch.ones(1, 64, device="loom")).sum().backward()
    assert since(before).pending == since(before).host == 0
    assert model.weight.grad is not None


@pytest.mark.parametrize("round_", range(5))
def test_threads_that_use_a_tensor_first_move_it_once(round_: int) -> None:
    x = torch.arange(MIB, dtype=torch.float32, device="loom")
    expected = x.cpu().sum(dtype=torch.float64).item()
    before = figures()
    start = threading.Barrier(4)
    sums: list[float] = []
    addresses: list[int] = []

    def use(number: int) -> None:
        start.wait()
        if number == round_:
            addresses.append(x.data_ptr())
        sums.append(x.sum(dtype=torch.float64).item())
        addresses.append(x.data_ptr())

    threads = [threading.Thread(target=use, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sums == [expected] * 4
    assert len(set(addresses)) == 1
    assert (since(before).moves, since(before).moved) == (1, 4 * MIB)


def test_one_thread_fills_what_another_does_not_read() -> None:
    for _ in range(20):
        x = torch.zeros(2, 1000, device="loom")
        start = threading.Barrier(2)

        def fill(x: Tensor = x, start: threading.Barrier = start) -> None:
            start.wait()
            x[0].fill_(1)

        thread = threading.Thread(target=fill)
        thread.start()
        start.wait()
        assert x[1].sum().item() == 0
        thread.join()
        assert x[0].sum().item() == 1000


def test_streams() -> None:
    side, other = torch.loom.Stream(), torch.loom.Stream()
    for _ in range(20):
        x = torch.randn(1000, device="loom")
        expected = x.cpu()
        with torch.loom.stream(side):
            doubled = x * 2
        with torch.loom.stream(other):
            tripled = x * 3  # no event between the two: the move is not the user's work
        torch.loom.synchronize()
        assert torch.equal(doubled.cpu(), expected * 2)
        assert torch.equal(tripled.cpu(), expected * 3)


def test_memory_comes_from_the_pool_of_the_stream_that_made_the_tensor() -> None:
    torch.loom.empty_cache()
    x = torch.ones(3 * MIB, device="loom")
    with torch.loom.stream(torch.loom.Stream()):
        x + 1
    torch.loom.synchronize()
    address = x.data_ptr()
    del x
    assert on_device(torch.empty(3 * MIB, device="loom")).data_ptr() == address


def test_record_stream() -> None:
    x = torch.ones(4, device="loom")
    before = figures()
    x.record_stream(torch.loom.current_stream())
    assert since(before).moves == 1
    assert x.tolist() == [1] * 4


def test_out_of_memory_leaves_the_tensor_on_the_host() -> None:
    x = torch.arange(8 * MIB, dtype=torch.float32, device="loom")
    torch.loom.empty_cache()
    free_bytes = torch.loom.mem_get_info()[0]
    big = on_device(torch.empty(free_bytes - 16 * MIB, dtype=torch.uint8, device="loom"))
    before = figures()
    for use in (lambda: x + 1, x.data_ptr, lambda: x.untyped_storage().data_ptr(), x.clone):
        with pytest.raises(torch.OutOfMemoryError):
            use()
    assert since(before) == Figures()
    assert x[5].item() == 5
    x[6].fill_(60)
    del big
    torch.loom.empty_cache()
    assert (x[:8] + 1).tolist() == [1, 2, 3, 4, 5, 6, 61, 8]
    assert since(before).moves == 1


def test_unwritten_memory_reads_the_same_each_time() -> None:
    x = torch.empty(1000, dtype=torch.uint8, device="loom")
    first = x.cpu()
    assert torch.equal(x.cpu(), first)
    assert torch.equal((x + 0).cpu(), first)


def test_deterministic_fill() -> None:
    torch.use_deterministic_algorithms(True)
    try:
        assert torch.empty(3, device="loom").isnan().all()
        assert torch.empty(3, device="loom").resize_(5).isnan().all()
    finally:
        torch.use_deterministic_algorithms(False)


def test_gradients_of_unmaterialised_leaves() -> None:
    x = torch.ones(3, device="loom", requires_grad=True)
    y = torch.full((3,), 2.0, device="loom")
    (x * y).sum().backward()
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2, 2]
    with torch.no_grad():
        x.zero_()
    x.grad = None
    x.exp().sum().backward()
    assert x.grad.tolist() == [1, 1, 1]


def test_in_place_on_an_unmaterialised_leaf_is_refused_as_ever() -> None:
    x = torch.ones(3, device="loom", requires_grad=True)
    with pytest.raises(RuntimeError, match="a leaf Variable that requires grad"):
        x.fill_(2)
    version = (y := torch.ones(3, device="loom"))._version
    y.fill_(4)
    assert y._version == version + 1


def test_sparse() -> None:
    x = torch.eye(3).to_sparse().to("loom")
    assert (x @ torch.arange(9.0, device="loom").view(3, 3)).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]


def test_a_list_on_the_host_side() -> None:
    tensors = [torch.ones(2, device="loom"), torch.ones(3, device="loom")]
    torch._foreach_add_(tensors, 1)
    torch._foreach_zero_([torch.ones(2, device="loom")])
    assert [each.tolist() for each in tensors] == [[2, 2], [2, 2, 2]]
