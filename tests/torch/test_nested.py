"""Nested tensors, strided and jagged, against the CPU's."""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

LAYOUTS = (torch.strided, torch.jagged)


def parts(seed: int = 0, width: int = 8) -> list[Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, width, generator=generator) for rows in (2, 5, 3)]


def nested(given: Sequence[Tensor], device: str, layout: torch.layout) -> Tensor:
    return torch.nested.as_nested_tensor([each.to(device) for each in given], layout=layout)


def same(here: Tensor, there: Tensor) -> None:
    assert here.device.type == "loom"
    assert here.is_nested == there.is_nested
    if not there.is_nested:
        torch.testing.assert_close(here.cpu(), there)
        return
    assert here.layout == there.layout
    ours, theirs = here.unbind(), there.unbind()
    assert len(ours) == len(theirs)
    for mine, other in zip(ours, theirs, strict=True):
        assert mine.device.type == "loom"
        torch.testing.assert_close(mine.cpu(), other)


OPS: dict[str, Callable[[Tensor], Tensor]] = {
    "scaled": lambda x: x * 2.5,
    "sum of two": lambda x: x + x,
    "relu": torch.relu,
    "gelu": functional.gelu,
    "negative": torch.neg,
    "linear": lambda x: functional.linear(x, torch.linspace(-1, 1, 24, device=x.device).view(3, 8)),
    "softmax": lambda x: x.softmax(-1),
    "layer norm": lambda x: functional.layer_norm(
        x, (8,), torch.linspace(1, 2, 8, device=x.device), torch.zeros(8, device=x.device)
    ),
    "padded": lambda x: x.to_padded_tensor(-1.0),
    "sum": lambda x: x.sum(-1, keepdim=True),
    "clone": lambda x: x.clone(),
    "contiguous transpose": lambda x: (x.transpose(-1, -2) if x.layout == torch.strided else x).contiguous(),
    "unsqueezed": lambda x: x.unsqueeze(-1),
    "zeros": torch.zeros_like,
    "half and back": lambda x: x.to(torch.float64).to(torch.float32),
}


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
@pytest.mark.parametrize("op", OPS)
def test_ops(op: str, layout: torch.layout) -> None:
    same(OPS[op](nested(parts(), "loom", layout)), OPS[op](nested(parts(), "cpu", layout)))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_from_lists_and_to_the_host(layout: torch.layout) -> None:
    here = torch.nested.nested_tensor([[1.0, 2.0], [3.0]], device="loom", layout=layout)
    there = torch.nested.nested_tensor([[1.0, 2.0], [3.0]], layout=layout)
    same(here, there)
    same(there.to("loom"), there)
    for mine, other in zip(here.cpu().unbind(), there.unbind(), strict=True):
        torch.testing.assert_close(mine, other)
    assert "nested" in repr(here).lower()


def test_views_and_writes_reach_the_same_memory() -> None:
    here = nested(parts(), "loom", torch.strided)
    first = here.unbind()[0]
    first.fill_(7.0)
    here.mul_(2)
    assert first.cpu().unique().tolist() == [14.0]
    assert here.select(0, 0).data_ptr() == first.data_ptr()
    assert here.transpose(1, 2).values().data_ptr() == here.values().data_ptr()
    assert [each.shape for each in here.transpose(1, 2).unbind()] == [(8, 2), (8, 5), (8, 3)]


def test_matrix_products() -> None:
    def product(device: str) -> Tensor:
        x = nested(parts(), device, torch.strided)
        return torch.matmul(x, x.transpose(1, 2))

    same(product("loom"), product("cpu"))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_attention(layout: torch.layout) -> None:
    def attended(device: str) -> Tensor:
        given = [each.view(-1, 2, 4).transpose(0, 1).contiguous() for each in parts()]
        if layout == torch.strided:
            q = k = v = nested(given, device, layout)
        else:
            q = k = v = nested([each.view(-1, 2, 4) for each in parts()], device, layout).transpose(1, 2)
        return functional.scaled_dot_product_attention(q, k, v).contiguous()

    same(attended("loom"), attended("cpu"))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_gradients(layout: torch.layout) -> None:
    def gradients(device: str) -> list[Tensor]:
        given = [each.to(device).requires_grad_() for each in parts()]
        weight = torch.linspace(-1, 1, 24, device=device).view(3, 8).requires_grad_()
        x = torch.nested.as_nested_tensor(given, layout=layout)
        (functional.linear(x, weight).relu().to_padded_tensor(0.0) ** 2).sum().backward()
        return [each.grad.cpu() for each in (*given, weight) if each.grad is not None]

    ours, theirs = gradients("loom"), gradients("cpu")
    assert len(ours) == len(theirs) == 4
    for mine, other in zip(ours, theirs, strict=True):
        torch.testing.assert_close(mine, other)


@pytest.mark.filterwarnings("ignore:.*nested")
def test_an_encoder_layer() -> None:
    torch.manual_seed(0)
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).eval()
    with torch.no_grad():
        there = layer(nested(parts(), "cpu", torch.strided))
        same(layer.to("loom")(nested(parts(), "loom", torch.strided)), there)


def test_what_the_cpu_lacks_names_the_other_layout() -> None:
    with pytest.raises(NotImplementedError, match=r"layout=torch\.jagged"):
        nested(parts(), "loom", torch.strided).erfinv()


def test_on_a_side_stream() -> None:
    x = nested(parts(), "loom", torch.strided)
    side = torch.loom.Stream()
    side.wait_stream(torch.loom.current_stream())
    with torch.loom.stream(side):
        y = (x * 2).softmax(-1).sum(-1, keepdim=True)
    torch.loom.current_stream().wait_stream(side)
    same(y, (nested(parts(), "cpu", torch.strided) * 2).softmax(-1).sum(-1, keepdim=True))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_it_is_saved_and_loaded(layout: torch.layout) -> None:
    there = nested(parts(), "cpu", layout)
    file = io.BytesIO()
    torch.save(nested(parts(), "loom", layout), file)
    file.seek(0)
    same(torch.load(file, weights_only=False), there)
    file.seek(0)
    read = torch.load(file, "cpu", weights_only=False)
    assert all(torch.equal(*pair) for pair in zip(read.unbind(), there.unbind(), strict=True))
