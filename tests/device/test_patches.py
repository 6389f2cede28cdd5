"""What is patched in PyTorch does what its reason says, and nothing else."""

from __future__ import annotations

import io
import warnings

import pytest
import torch
from torch.utils.dlpack import DLDeviceType

from torch_loom import _C


def test_dlpack_both_ways() -> None:
    tensor = torch.arange(6.0, device="loom:1").view(2, 3)[:, 1:]
    assert tensor.__dlpack_device__() == (DLDeviceType.kDLExtDev, 1)
    same = torch.from_dlpack(tensor)
    assert same.device == tensor.device
    assert same.data_ptr() == tensor.data_ptr()
    assert same.stride() == tensor.stride()
    same.fill_(5)
    assert tensor.tolist() == [[5, 5], [5, 5]]
    assert torch.ones(2).__dlpack_device__() == (DLDeviceType.kDLCPU, 0)
    with pytest.raises(ValueError, match="Unknown device type meta"):
        torch.ones(2, device="meta").__dlpack_device__()


def test_dlpack_of_subclasses() -> None:
    class Subclass(torch.Tensor):
        calls = 0

        @classmethod
        def __torch_function__(cls, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            cls.calls += func is torch.Tensor.__dlpack_device__
            return super().__torch_function__(func, types, args, kwargs)

    tensor = torch.ones(2, device="loom").as_subclass(Subclass)
    assert tensor.__dlpack_device__() == (DLDeviceType.kDLExtDev, 0)
    assert Subclass.calls == 1


@pytest.mark.parametrize("tag", [b"rbln:1", b"loom:1"])
def test_checkpoints_under_both_names(tag: bytes) -> None:
    file = io.BytesIO()
    torch.save(torch.arange(3, device="loom:1"), file, _use_new_zipfile_serialization=False)
    assert file.getvalue().count(b"loom:1") == 1
    loaded = torch.load(io.BytesIO(file.getvalue().replace(b"loom:1", tag)))
    assert loaded.device == torch.device("loom:1")
    assert loaded.tolist() == [0, 1, 2]


def test_map_location_takes_both_names() -> None:
    file = io.BytesIO()
    torch.save(torch.arange(3), file)
    for name in ("loom:1", "rbln:1"):
        file.seek(0)
        assert torch.load(file, map_location=name).device == torch.device("loom:1")


def test_only_another_default_dtype_waits(monkeypatch: pytest.MonkeyPatch) -> None:
    waits: list[str] = []
    monkeypatch.setattr(_C, "drain", lambda: waits.append("drain"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the name is deprecated
        try:
            torch.set_default_dtype(torch.float32)
            torch.set_default_tensor_type(torch.FloatTensor)
            assert not waits
            torch.set_default_tensor_type(torch.DoubleTensor)
            torch.set_default_dtype(torch.float64)
            assert len(waits) == 1
        finally:
            torch.set_default_dtype(torch.float32)


def test_another_default_dtype_leaves_queued_ops_alone() -> None:
    """The default dtype is what it was when the op was issued, also if the program sets another at once."""
    x = torch.arange(1, 9, device="loom")
    stream = torch.loom.Stream()
    try:
        for dtype in (torch.float64, torch.float32):
            torch.set_default_dtype(dtype)
            with torch.loom.stream(stream):
                torch.loom._sleep(20_000_000)
                results = (x / 3, x.sqrt())
            torch.set_default_dtype(torch.float16)
            stream.synchronize()
            expected = torch.arange(1, 9).to(dtype)
            assert torch.equal(results[0].cpu(), expected / 3)
            assert torch.equal(results[1].cpu(), expected.sqrt())
    finally:
        torch.set_default_dtype(torch.float32)
