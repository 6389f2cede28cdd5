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


def truth_values_are_divided_as_numbers() -> None:
    """A truth value beside a number of another dtype is one of that dtype, also where it divides by zero."""
    truths, zeros = (
        torch.tensor([True, False], device=DEVICE),
        torch.zeros(2, dtype=torch.int32, device=DEVICE),
    )
    assert truths.fmod(zeros).tolist() == [-1, -1]
    assert zeros.remainder(torch.tensor([True, True], device=DEVICE)).tolist() == [0, 0]


def norms_and_spreads_are_shaped_as_those_of_other_devices() -> None:
    whole = torch.arange(120.0).view(2, 3, 4, 5) - 50
    shapes = (whole, whole.permute(2, 0, 3, 1)[:, ::2], whole[:1].expand(3, -1, -1, -1), torch.ones(()))
    for view in (*shapes, torch.ones(0, 3), torch.ones(3, 0)):
        for op in (
            torch.linalg.vector_norm,
            lambda x: torch.linalg.vector_norm(x, 1, -1, keepdim=True) if x.dim() else x,
            lambda x: torch.var(x, correction=100),
            lambda x: torch.std_mean(x, (-1,), correction=0)[0] if x.dim() else x,
            lambda x: torch._foreach_norm([x, x])[1],
        ):
            expected, found = op(view), op(view.to(DEVICE))
            assert (found.shape, found.stride()) == (expected.shape, expected.stride())
            torch.testing.assert_close(found.cpu(), expected, equal_nan=True)
    halves = torch.ones(3, dtype=torch.float16, device=DEVICE)
    out = torch.empty((), dtype=torch.float32, device=DEVICE)
    raises(
        "RuntimeError", "Expected out tensor to have dtype", lambda: torch.linalg.vector_norm(halves, out=out)
    )


def fused_steps_take_any_layout_and_skip_what_is_infinite() -> None:
    for shape in ((0,), (), (5,), (3, 4)):
        values = (
            torch.arange(max(1, torch.Size(shape).numel())).sin()[: torch.Size(shape).numel()].view(shape)
        )
        for make in (
            lambda p: torch.optim.AdamW(p, lr=torch.tensor(1e-2), fused=True),
            lambda p: torch.optim.SGD(p, 0.1, momentum=0.9, fused=True),
        ):
            results = []
            for device in ("cpu", DEVICE):
                own = values.to(device, copy=True)
                parameter = torch.nn.Parameter(own.mT if len(shape) == 2 else own)
                optimizer = make([parameter])
                for _ in range(3):
                    parameter.grad = parameter.detach() * 0.5 + 0.1
                    optimizer.step()
                results.append(parameter.detach().cpu())
            torch.testing.assert_close(results[0], results[1])
    # Gradients that lie otherwise than their parameters, which have gaps.
    halves = torch.zeros(64, 32, dtype=torch.float16, device=DEVICE)
    for view in (halves.clone().t(), halves.clone()[::2]):
        parameter = torch.nn.Parameter(view)
        parameter.grad = torch.ones(view.shape, dtype=torch.float16, device=DEVICE)
        torch.optim.SGD([parameter], lr=1.0, fused=True).step()
        assert (parameter == -1).all()
    parameter = torch.nn.Parameter(torch.ones(3, device=DEVICE))
    parameter.grad = torch.full_like(parameter, float("inf"))
    scaler = torch.amp.GradScaler(DEVICE)
    scaler.scale(torch.ones((), device=DEVICE))
    scaler.step(torch.optim.Adam([parameter], fused=True))
    assert parameter.tolist() == [1, 1, 1]


sums_have_the_dtype_of_out()
truth_values_are_divided_as_numbers()
norms_and_spreads_are_shaped_as_those_of_other_devices()
fused_steps_take_any_layout_and_skip_what_is_infinite()
running_sums_take_dimensions_of_one_element()
shapes_in_place_stay()
rounding_modes_are_known()
results_lie_as_those_of_other_devices()
ranges_end_where_they_should()
