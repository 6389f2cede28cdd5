"""What torch.loom.explain is to find, and the repaired twins in which it is to find nothing."""

from __future__ import annotations

from collections.abc import Callable

import torch

DEVICE = "loom"

# Planted examples. The line that is to be found is marked: # here


def cpu_and_back(x):
    host = x.cpu()
    return host.to(DEVICE)  # here


def number_and_back(x):
    value = x.sum().item()
    return torch.tensor(value, device=DEVICE)  # here


def list_and_back(x):
    values = x.tolist()
    return torch.tensor(values, device=DEVICE)  # here


def numpy_and_back(x):
    array = x.cpu().numpy()
    return torch.from_numpy(array).to(DEVICE)  # here


def computed_on_the_host_and_back(x):
    host = x.cpu().sort().values * 2
    return host.to(DEVICE)  # here


def host_number_as_operand(x):
    scale = x.abs().max().cpu()
    return x / scale  # here


def item(x):
    return x.sum().item()  # here


def to_the_host(x):
    return x.cpu()  # here


def if_tensor(x):
    if x.sum() > 0:  # here
        return 1
    return 2


def nonzero(x):
    return x.nonzero()  # here


def mask(x):
    return x[x > 0]  # here


def equal(x):
    return torch.equal(x, x + 1)  # here


def printed(x):
    return str(x)  # here


def blocking_copy(x):
    return torch.ones(64).to(DEVICE)  # here


def pageable(x):
    return torch.ones(64).to(DEVICE, non_blocking=True)  # here


def contiguous(x):
    return x.t().contiguous()  # here


def reshaped(x):
    return x.t().reshape(-1)  # here


def memory_format(x):
    return x.view(1, 4, 4, 4).to(memory_format=torch.channels_last)  # here


def in_backward(x):
    leaf = x.requires_grad_()
    leaf.t().reshape(-1).sum().backward()  # here


def promoted(x):
    return x.half() * x  # here


def promoted_in_a_list(x):
    return torch.cat([x.half(), x])  # here


PLANTED: list[tuple[str, Callable[[torch.Tensor], object], str]] = [
    ("host_round_trip", cpu_and_back, "aten::to"),
    ("host_round_trip", number_and_back, "aten::to"),
    ("host_round_trip", list_and_back, "aten::to"),
    ("host_round_trip", numpy_and_back, "aten::to"),
    ("host_round_trip", computed_on_the_host_and_back, "aten::to"),
    ("host_round_trip", host_number_as_operand, "aten::div"),
    ("implicit_sync", item, "aten::item"),
    ("implicit_sync", to_the_host, "aten::to"),
    ("implicit_sync", if_tensor, "aten::is_nonzero"),
    ("implicit_sync", nonzero, "aten::nonzero"),
    ("implicit_sync", mask, "aten::index"),
    ("implicit_sync", equal, "aten::equal"),
    ("implicit_sync", printed, ""),
    ("implicit_sync", blocking_copy, "aten::to"),
    ("pageable_copy", pageable, "aten::to"),
    ("noncontiguous_copy", contiguous, "aten::contiguous"),
    ("noncontiguous_copy", reshaped, "aten::reshape"),
    ("noncontiguous_copy", memory_format, "aten::to"),
    ("noncontiguous_copy", in_backward, ""),
    ("dtype_conversion", promoted, "aten::mul"),
    ("dtype_conversion", promoted_in_a_list, "aten::cat"),
]


# The twins.


def stays_on_the_device(x):
    return x.sort().values * 2


def whole_numbers_are_no_round_trip(x):
    return torch.full((3,), 2.0, device=DEVICE)


def pinned(x):
    host = torch.ones(64).pin_memory()
    device = host.to(DEVICE, non_blocking=True)
    back = torch.empty(64, pin_memory=True)
    back.copy_(device, non_blocking=True)
    torch.loom.synchronize()  # asked for
    return back


def masked_without_a_count(x):
    return torch.where(x > 0, x, 0.0)


def compared_on_the_device(x):
    return (x == x + 1).all()


def views(x):
    return x.t(), x.reshape(-1), x.view(4, 16), x[::2], x.contiguous()


def asked_copies(x):
    y = torch.empty(8, 8, device=DEVICE)
    y.copy_(x.t())
    y[:, 0] = x[0]
    return y.clone(), x.t().clone(), x.contiguous()


def asked_casts(x):
    y = x.half()
    y.copy_(x)
    return y.float() * x, x.sum(dtype=torch.float64), y.softmax(-1, dtype=torch.float32), x.type_as(y)


def autocast(x):
    with torch.autocast(DEVICE, dtype=torch.bfloat16):
        return x @ x


def host_only(x):
    return torch.ones(4).sum().item(), torch.ones(4, 4).t().contiguous()


def staging_buffer(x):
    buffer = torch.zeros(8, 8).pin_memory()
    buffer.copy_(x, non_blocking=True)
    torch.loom.current_stream().synchronize()
    buffer.copy_(torch.ones(8, 8))  # the data of the device is gone
    return buffer.to(DEVICE, non_blocking=True)


TWINS = [
    stays_on_the_device,
    whole_numbers_are_no_round_trip,
    pinned,
    masked_without_a_count,
    compared_on_the_device,
    views,
    asked_copies,
    asked_casts,
    autocast,
    host_only,
    staging_buffer,
]
