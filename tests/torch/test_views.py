"""Views share their base's memory: what is written through one is read through the other."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

VIEWS: dict[str, Callable[[Tensor], Tensor]] = {
    "view": lambda x: x.view(6, 4),
    "view_dtype": lambda x: x.view(torch.int32),
    "reshape": lambda x: x.reshape(-1),
    "transpose": lambda x: x.transpose(0, 2),
    "permute": lambda x: x.permute(2, 0, 1),
    "slice": lambda x: x[:, 1:, ::2],
    "select": lambda x: x[1],
    "expand": lambda x: x[:1].expand(5, 3, 4),
    "diagonal": lambda x: x.diagonal(dim1=1, dim2=2),
    "unfold": lambda x: x.unfold(2, 2, 1),
    "as_strided": lambda x: x.as_strided((2, 2), (5, 3), 1),
    "split": lambda x: x.split(2, 2)[1],
    "chunk": lambda x: x.chunk(3, 1)[2],
    "unbind": lambda x: x.unbind(1)[0],
    "squeeze": lambda x: x.unsqueeze(0).squeeze(0),
    "narrow": lambda x: x.narrow(2, 1, 2),
    "detach": lambda x: x.detach(),
    "unflatten": lambda x: x.unflatten(2, (2, 2)),
    "movedim": lambda x: x.movedim(0, -1),
    "view_as_complex": lambda x: torch.view_as_complex(x.view(2, 3, 2, 2)),
}


@pytest.mark.parametrize("name", VIEWS)
def test_view_has_the_layout_and_the_memory_of_the_cpus(name: str) -> None:
    base = torch.arange(24.0).view(2, 3, 4)
    expected = VIEWS[name](base)
    device_base = base.to("loom")
    view = VIEWS[name](device_base)
    assert view.untyped_storage().data_ptr() == device_base.untyped_storage().data_ptr()
    assert view.stride() == expected.stride()
    assert view.storage_offset() == expected.storage_offset()
    assert torch.equal(view.cpu(), expected)
    view.zero_() if name != "expand" else view[0].zero_()
    expected.zero_() if name != "expand" else expected[0].zero_()
    assert torch.equal(device_base.cpu(), base)


def test_conj_and_neg_are_views() -> None:
    base = torch.tensor([1 + 2j, 3 - 4j])
    x = base.to("loom")
    conj, negative = x.conj(), x.conj().imag
    assert conj.is_conj()
    assert negative.is_neg()
    x.mul_(2)
    assert conj.tolist() == [2 - 4j, 6 + 8j]
    assert negative.tolist() == [-4, 8]
    assert torch.equal((conj @ x).cpu(), (base * 2).conj() @ (base * 2))
    negative.add_(1)
    assert x.imag.tolist() == [3, -9]
    assert torch.equal(conj.resolve_conj().cpu(), x.cpu().conj())


def test_writing_through_a_view_counts_as_a_version_of_the_base() -> None:
    x = torch.zeros(3, device="loom")
    before = x._version
    x[1:].add_(1)
    assert x._version == before + 1
    assert x.tolist() == [0, 1, 1]


def test_lazy_clone_copies_on_write() -> None:
    x = torch.ones(3, device="loom")
    clone = torch._lazy_clone(x)
    clone.add_(1)
    assert (x.tolist(), clone.tolist()) == ([1] * 3, [2] * 3)


@pytest.mark.parametrize("size", [(3, 4), (1,)])
def test_as_strided_beyond_the_storage(size: tuple[int, ...]) -> None:
    with pytest.raises(RuntimeError, match="out of bounds for storage of size 24"):
        torch.zeros(6, device="loom").as_strided(size, (4,) * len(size), 6)
