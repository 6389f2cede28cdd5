"""Copies between any two devices, dtypes and layouts."""

from __future__ import annotations

import itertools
from pathlib import Path

import pytest
import torch

PROGRAMS = Path(__file__).parent / "programs" / "copies"

DEVICES = ("cpu", "loom:0", "loom:1")
DTYPES = (
    torch.bool,
    torch.uint8,
    torch.int16,
    torch.int64,
    torch.float16,
    torch.bfloat16,
    torch.float32,
    torch.float64,
    torch.complex64,
    torch.complex128,
    torch.float8_e4m3fn,
    torch.uint16,
)


@pytest.mark.parametrize(("source", "destination"), list(itertools.product(DEVICES, DEVICES)))
def test_between_devices_and_dtypes(source: str, destination: str) -> None:
    values = torch.tensor([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])
    for from_dtype, to_dtype in itertools.product(DTYPES, DTYPES):
        if from_dtype.is_complex and not to_dtype.is_complex:
            continue  # PyTorch warns that it drops the imaginary part
        x = values.to(from_dtype)
        expected = torch.empty(2, 3, dtype=to_dtype).copy_(x)
        copied = torch.empty(2, 3, dtype=to_dtype, device=destination).copy_(x.to(source))
        assert copied.device == torch.device(destination)
        assert copied.dtype == to_dtype
        assert torch.equal(copied.cpu().view(torch.uint8), expected.view(torch.uint8)), (from_dtype, to_dtype)


@pytest.mark.parametrize(("source", "destination"), list(itertools.product(DEVICES, DEVICES)))
def test_between_layouts(source: str, destination: str) -> None:
    x = torch.arange(24.0).view(2, 3, 4)
    for view in (
        lambda t: t,
        lambda t: t.transpose(0, 2),
        lambda t: t[:, :1].expand(2, 3, 4),
        lambda t: t[:, ::2],
    ):
        expected = view(x)
        got = torch.full(expected.shape, -1.0, device=destination).mT.contiguous().mT
        got.copy_(view(x.to(source)))
        assert torch.equal(got.cpu(), expected)


@pytest.mark.parametrize("destination", DEVICES)
def test_conjugate_and_negative_sources(destination: str) -> None:
    x = torch.tensor([1 + 2j, 3 - 4j])
    y = x.to("loom")
    got = torch.zeros(2, dtype=torch.complex64, device=destination).copy_(y.conj())
    assert got.tolist() == [1 - 2j, 3 + 4j]
    got.conj().copy_(y)
    assert got.tolist() == [1 - 2j, 3 + 4j]
    assert torch.zeros(2, device=destination).copy_(y.conj().imag).tolist() == [-2, 4]


def test_source_broadcasts() -> None:
    x = torch.zeros(2, 3, device="loom")
    x.copy_(torch.tensor([1.0, 2.0, 3.0]))
    assert x.tolist() == [[1, 2, 3]] * 2
    with pytest.raises(RuntimeError, match="must match"):
        x.copy_(torch.zeros(4))


def test_a_copy_is_not_an_alias() -> None:
    x = torch.ones(3)
    y = x.to("loom")
    x.zero_()
    assert y.tolist() == [1, 1, 1]
    assert y.to("loom") is y
    assert y.to("loom", copy=True).data_ptr() != y.data_ptr()
    z = y.to("loom:1")
    y.zero_()
    assert z.tolist() == [1, 1, 1]


def test_memory_format_survives() -> None:
    x = torch.randn(2, 3, 4, 5).to(memory_format=torch.channels_last)
    y = x.to("loom")
    assert y.is_contiguous(memory_format=torch.channels_last)
    assert torch.equal(y.cpu(), x)
    assert y.contiguous().stride() == (60, 20, 5, 1)
    assert torch.equal(y.contiguous().cpu(), x)


def test_reading_one_element() -> None:
    for dtype in DTYPES:
        value = torch.tensor([0, 1]).to(dtype)
        assert value.to("loom")[1].item() == value[1].item()
    with pytest.raises(RuntimeError, match="cannot be converted to Scalar"):
        torch.zeros(2, device="loom").item()


def test_foreach_copy_takes_sources_of_any_device() -> None:
    destinations = [torch.zeros(2, device="loom:0"), torch.zeros(2, device="loom:1"), torch.zeros(2)]
    torch._foreach_copy_(
        destinations, [torch.ones(2), torch.ones(2, device="loom:0"), torch.ones(2, device="loom")]
    )
    assert [x.tolist() for x in destinations] == [[1, 1]] * 3


def test_an_index_on_the_device_does_not_move_a_cpu_tensor() -> None:
    assert torch.arange(4, device="loom")[torch.tensor([2])].tolist() == [2]
    with pytest.raises(RuntimeError, match="device"):
        _ = torch.arange(4)[torch.tensor([2], device="loom")]


def test_meta_has_no_contents() -> None:
    with pytest.raises((RuntimeError, NotImplementedError), match="Cannot copy out of meta tensor"):
        torch.zeros(2, device="loom").copy_(torch.zeros(2, device="meta"))


def test_a_copy_on_write_clone_written_by_an_op_that_also_reads_it_leaves_the_source_alone():
    source = torch.ones(3, device="loom")
    clone = torch._lazy_clone(source)
    torch.add(clone, 1, out=clone)
    assert source.tolist() == [1.0, 1.0, 1.0]
    assert clone.tolist() == [2.0, 2.0, 2.0]


def test_pinned_memory_is_kept_until_its_copy_has_finished() -> None:
    side, x = torch.Stream("loom"), torch.randn(512, 512, device="loom")
    torch.loom.synchronize()
    with torch.loom.stream(side):
        for _ in range(2):  # the first time, an op runs in place
            for _ in range(20):
                x @ x
        host = torch.arange(4096.0).pin_memory()
        copied = host.to("loom", non_blocking=True)
        is_under_way = not side.query()
        address = host.data_ptr()
        del host
        other = torch.zeros(4096).pin_memory()
    assert not is_under_way or other.data_ptr() != address
    side.synchronize()
    assert torch.equal(copied.cpu(), torch.arange(4096.0))


@pytest.mark.slow
def test_a_python_number_decides_no_dtype_in_a_queue(warm_python) -> None:
    warm_python(PROGRAMS / "a_python_number_decides_no_dtype_in_a_queue.py", {"TORCH_LOOM_LAUNCH": "chaos"})
