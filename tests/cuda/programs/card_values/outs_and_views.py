"""Kernels of CUDA's values take outs, views and shapes as the CPU's do, and refuse what those refuse."""

from __future__ import annotations

import torch

from tests.raising import raises

DEVICE = "cuda"


def sums_have_the_dtype_of_out() -> None:
    narrow = torch.full((40, 3), 1.0009765625, dtype=torch.float16)
    for out in (torch.float32, torch.float64, torch.int64):
        for op in (torch.sum, torch.cumsum):
            expected = op(narrow, 0, out=torch.empty(0, dtype=out))
            result = op(narrow.to(DEVICE), 0, out=torch.empty(0, device=DEVICE, dtype=out))
            assert result.dtype == out
            assert result.cpu().equal(expected), (op, out)
    halves = torch.tensor([[1.0, 2.0], [2.0, 4.0]], device=DEVICE)
    assert torch.mean(halves, 0, out=torch.empty(0, device=DEVICE, dtype=torch.float64)).tolist() == [1.5, 3]
    assert torch.prod(halves, 0, out=torch.empty(0, device=DEVICE, dtype=torch.float16)).tolist() == [2, 8]


def running_sums_take_dimensions_of_one_element() -> None:
    """Their strides are any: 0 of what was expanded, or those of a larger tensor."""
    whole = torch.arange(192.0).view(4, 6, 8)
    for view in (whole[0, 0].expand(4, 8)[:1], whole.transpose(0, 1)[:3, :1], whole[:, :1].transpose(0, 1)):
        on_device = whole.to(DEVICE).as_strided(view.shape, view.stride(), view.storage_offset())
        for dim in range(view.dim()):
            assert on_device.cumsum(dim).cpu().equal(view.cumsum(dim)), (view.stride(), dim)


def shapes_in_place_stay() -> None:
    one, several = torch.tensor([7], device=DEVICE), torch.tensor([1, 2, 3], device=DEVICE)
    for op in (one.floor_divide_, one.remainder_, one.fmod_):
        raises("RuntimeError", "doesn't match the broadcast shape", lambda op=op: op(several))
    assert one.tolist() == [7]
    narrow = torch.ones(2, 3, dtype=torch.float16, device=DEVICE)
    raises("RuntimeError", "should match", lambda: narrow.cumsum_(0, dtype=torch.float32))


def rounding_modes_are_known() -> None:
    whole = torch.tensor([7], device=DEVICE)
    raises("RuntimeError", "rounding_mode", lambda: whole.div(2, rounding_mode="up"))


def results_lie_as_those_of_other_devices() -> None:
    images = torch.arange(120.0).view(3, 8, 5)
    for view in (images, images.permute(2, 0, 1), images[:, ::2]):
        for dim in range(3):
            for op in (torch.sort, torch.median, torch.mode, lambda x, dim: x.topk(2, dim)):
                expected, found = op(view, dim=dim), op(view.to(DEVICE), dim=dim)
                assert [each.stride() for each in found] == [each.stride() for each in expected], (op, dim)


def ranges_end_where_they_should() -> None:
    for dtype in (torch.int32, torch.int64):
        least, most = torch.iinfo(dtype).min, torch.iinfo(dtype).max
        assert torch.linspace(least, most, 3, dtype=dtype, device=DEVICE).tolist() == [least, 0, most]


sums_have_the_dtype_of_out()
running_sums_take_dimensions_of_one_element()
shapes_in_place_stay()
rounding_modes_are_known()
results_lie_as_those_of_other_devices()
ranges_end_where_they_should()
