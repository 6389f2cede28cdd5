"""The graph that one forward is noted as: an export's, op by op; what it cannot tell is left to an export."""

from __future__ import annotations

import logging
import queue
from collections import Counter, deque
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.nn import functional

from torch_loom.compiler.capture import NotPlainError
from torch_loom.compiler.frontend import Exported, exported, plainly_exported

DEVICE = torch.device("loom:0")


class _Net(nn.Module):
    """Layers of its own, in an order that a function says."""

    def __init__(self, run: Callable[[_Net, Tensor], Any]) -> None:
        super().__init__()
        self.run = run
        self.first, self.tied = nn.Linear(8, 8), nn.Linear(8, 8, bias=False)
        self.tied.weight = self.first.weight
        self.conv, self.norm = nn.Conv2d(3, 4, 3, padding=1), nn.BatchNorm2d(4)
        self.table, self.layer = nn.Embedding(8, 8), nn.LayerNorm(8)
        self.heads = nn.MultiheadAttention(8, 2, batch_first=True)
        self.encoder = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True)
        self.register_buffer("scale", torch.full((8,), 0.5))
        self.plain = torch.ones(8, device=DEVICE)
        self.calls = 0
        self.kept: dict[str, Any] = {"of this": ([], 1), "object": _Object(), "tensors": [torch.ones(8)]}
        self.kept["counter"] = Counter()

    def forward(self, x: Tensor) -> Any:
        return self.run(self, x)


def _made(run: Callable[[_Net, Tensor], Any]) -> _Net:
    torch.manual_seed(0)
    return _Net(run).to(DEVICE).eval()


def _text(source: Exported) -> list[str]:
    """Each op with operands by their places, and all that is known of its results."""
    places: dict[fx.Node, Any] = {}
    names = {name: source.parameters[name].data_ptr() for name in source.sources}  # tied: of several names
    lines = []
    for node in source.graph.graph.nodes:
        if node.op == "placeholder":
            places[node] = names.get(node.name, node.name)
            continue
        args = fx.node.map_arg((node.args, node.kwargs), lambda one: places[one])
        values = torch.utils._pytree.tree_leaves(node.meta.get("val"))
        told = [
            (value.dtype, value.shape, value.stride(), value.device) for value in values if value is not None
        ]
        lines.append(f"{node.target} {args} {told if node.op != 'output' else ''}")
        places[node] = len(lines)
    return [*lines, source.specs["out"]]


def _mlp(net: _Net, x: Tensor) -> Any:
    hidden = functional.relu(net.first(x), inplace=True)
    return net.tied(hidden) * net.scale, {"again": hidden, "none": None}


def _images(net: _Net, x: Tensor) -> Any:
    made = net.conv(x.reshape(1, 3, 8, -1)[..., :8].contiguous())
    made = net.norm(made)
    made += net.conv.bias[:, None, None]
    return functional.max_pool2d(made, 2).flatten(1)


def _convolutions(net: _Net, x: Tensor) -> Any:
    image = x.reshape(1, 3, 8, 8)
    last = image.contiguous(memory_format=torch.channels_last)
    grouped = net.first.weight.reshape(8, 1, 2, 4)
    narrow = net.first.weight[:, :3].reshape(8, 3, 1, 1)
    return (
        functional.conv2d(image, net.conv.weight, stride=2, padding=(2, 0)),
        functional.conv2d(image, net.conv.weight, net.conv.bias, 1, 2, (2, 1)),
        functional.conv2d(image.repeat(1, 2, 1, 1), net.conv.weight.repeat(2, 1, 1, 1), groups=2),
        functional.conv2d(image[:, :1], grouped, padding=1),
        functional.conv2d(image, narrow.contiguous()),
        functional.conv2d(image, narrow.contiguous(memory_format=torch.channels_last)),
        functional.conv2d(image[..., :1, :1].contiguous(), narrow.contiguous()),
        functional.conv2d(last, net.conv.weight),
        functional.conv2d(image[0], net.conv.weight),
        functional.conv2d(image, net.conv.weight, padding="same"),
    )


def _activations(net: _Net, x: Tensor) -> Any:
    turned = x.transpose(0, 1)
    return [one(y) for one in (torch.relu, functional.gelu, functional.silu) for y in (x, turned, x[:, ::2])]


def _attention(net: _Net, x: Tensor) -> Any:
    words = torch.arange(6, device=x.device)[None]
    value = net.layer(net.table(words) + x[:1, :6])
    mask = torch.zeros_like(value[0, :, :6]).tril()
    return net.heads(value, value, value, attn_mask=mask)[0], net.encoder(value)


def _again(net: _Net, x: Tensor) -> Any:
    """Ops that return their operand, several times alike and then not."""
    made = []
    for _ in range(3):
        hidden = functional.dropout(net.first(x), 0.5, training=False)
        hidden.add_(x).mul_(2).unsqueeze_(0)
        made.append(hidden + hidden.contiguous())
    return made


def _several(net: _Net, x: Tensor) -> Any:
    left, right = x.chunk(2, -1)
    return left + right, x.max(-1), torch.zeros(3, device=x.device) + torch.ones_like(x[0, 0, :3])


@pytest.mark.long
@pytest.mark.parametrize("run", [_mlp, _images, _convolutions, _activations, _attention, _again, _several])
def test_the_graph_is_an_exports(run: Callable[[_Net, Tensor], Any]) -> None:
    net, x = _made(run), torch.rand(3, 8, 8, device=DEVICE)
    whole = exported(net, (x,), {}, DEVICE, has_whole_layers=False)
    plain = plainly_exported(net, (x,), {}, DEVICE)
    assert _text(plain) == _text(whole)
    given = [node.name for node in plain.graph.graph.find_nodes(op="placeholder")]
    assert [name for name in given if name not in plain.parameters] == ["x"]


def _branches(net: _Net, x: Tensor) -> Tensor:
    return x + 1 if x.sum() > 0 else x


def _lists(net: _Net, x: Tensor) -> Tensor:
    return x * len([one for one in x[0, 0].tolist() if one > 0])


def _counts(net: _Net, x: Tensor) -> Tensor:
    net.calls += 1
    return x * net.calls


def _reads(net: _Net, x: Tensor) -> Tensor:
    return x + net.plain


def _makes(net: _Net, x: Tensor) -> Tensor:
    return x * torch.tensor(2.0, device=x.device)


class _Object:
    """An object of a module's own."""

    def __init__(self) -> None:
        self.last: Any = None
        self.seen: Any = deque(maxlen=2)
        self.slots = _Slots()


class _Slots:
    __slots__ = ("last", "number")

    def __init__(self) -> None:
        self.number = 0


def _keeps(net: _Net, x: Tensor) -> Tensor:
    net.kept["of this"][0].append(net.first(x))
    return x


def _keeps_in_a_queue(net: _Net, x: Tensor) -> Tensor:
    net.kept["object"].seen.append(net.first(x))
    return x


def _keeps_in_an_object(net: _Net, x: Tensor) -> Tensor:
    net.kept["object"].last = net.first(x)
    return x


def _keeps_in_slots(net: _Net, x: Tensor) -> Tensor:
    net.kept["object"].slots.last = net.first(x)
    net.kept["object"].slots.number += 1
    return x


def _counts_by_name(net: _Net, x: Tensor) -> Tensor:
    net.kept["counter"]["calls"] += 1
    return x


def _replaces(net: _Net, x: Tensor) -> Tensor:
    net.kept["tensors"][0] = net.first(x)
    return x


def _casts(net: _Net, x: Tensor) -> Tensor:
    with torch.autocast("loom", torch.bfloat16):
        return net.first(x)


def _halves(net: _Net, x: Tensor) -> Tensor:
    return x.to(torch.float16)


def _maps(net: _Net, x: Tensor) -> Any:
    return torch.vmap(net.first)(x)


def _writes(net: _Net, x: Tensor) -> Any:
    hidden = net.first(x)
    flat = hidden.view(-1)
    hidden += 1
    return flat


def _learns(net: _Net, x: Tensor) -> Any:
    with torch.enable_grad():
        return net.first(x)


@pytest.mark.parametrize(
    "run", [_branches, _lists, _counts, _reads, _makes, _casts, _halves, _maps, _writes, _learns]
)
def test_what_is_not_plain_is_left_to_an_export(run: Callable[[_Net, Tensor], Any]) -> None:
    net, x = _made(run), torch.rand(3, 8, 8, device=DEVICE)
    before = dict(net.__dict__)
    with pytest.raises((NotPlainError, RuntimeError, NotImplementedError)):
        plainly_exported(net, (x,), {}, DEVICE)
    assert net.__dict__ == before


@pytest.mark.parametrize(
    "run", [_keeps, _keeps_in_a_queue, _keeps_in_an_object, _keeps_in_slots, _counts_by_name, _replaces]
)
def test_what_a_module_keeps_is_a_change(run: Callable[[_Net, Tensor], Any]) -> None:
    net, x = _made(run), torch.rand(3, 8, 8, device=DEVICE)
    (one,) = net.kept["tensors"]
    with pytest.raises(NotPlainError):
        plainly_exported(net, (x,), {}, DEVICE)
    assert not net.kept["of this"][0]
    assert net.kept["object"].last is None
    assert not net.kept["object"].seen
    assert net.kept["tensors"][0] is one
    assert not net.kept["counter"]
    slots = net.kept["object"].slots
    assert not hasattr(slots, "last")
    assert slots.number == 0


def test_what_threads_do_with_objects_of_libraries_is_let_alone() -> None:
    def run(net: _Net, x: Tensor) -> Tensor:
        net.kept["queue"].put(1)  # as another thread might
        net.kept["logger"].debug("unseen")
        return net.first(x)

    net, x = _made(run), torch.rand(3, 8, 8, device=DEVICE)
    net.kept.update(queue=queue.Queue(), logger=logging.getLogger(__name__))
    plainly_exported(net, (x,), {}, DEVICE)
    assert net.kept["queue"].qsize() == 1


def _wrong_norm(net: _Net, x: Tensor) -> Any:
    return net.norm(x.reshape(3, 8, 2, 4))


def _wrong_channels(net: _Net, x: Tensor) -> Any:
    return net.conv(x[:, None])


def _wrong_size(net: _Net, x: Tensor) -> Any:
    return net.conv(x.reshape(1, 3, 64, 1)[..., :0])


@pytest.mark.parametrize("wrong", [_wrong_norm, _wrong_channels, _wrong_size])
def test_wrong_sizes_are_errors(wrong: Callable[[_Net, Tensor], Any]) -> None:
    with pytest.raises(RuntimeError):
        plainly_exported(_made(wrong), (torch.rand(3, 8, 8, device=DEVICE),), {}, DEVICE)
