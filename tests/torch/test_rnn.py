"""Recurrent layers give the CPU's results and gradients."""

from __future__ import annotations

import copy

import pytest
import torch
from torch import nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
@pytest.mark.parametrize(
    "options",
    [{}, {"num_layers": 2, "bidirectional": True}, {"batch_first": True, "bias": False}],
    ids=["plain", "deep", "batch_first"],
)
@pytest.mark.parametrize("packed", [False, True], ids=["padded", "packed"])
def test_results_and_gradients_are_the_cpus(kind: type[nn.RNNBase], options: dict, packed: bool) -> None:
    torch.manual_seed(0)
    module = kind(3, 4, **options)
    x = torch.randn(5, 5, 3)
    results = []
    for device in ("cpu", "loom"):
        own, inputs = copy.deepcopy(module).to(device), x.to(device, copy=True).requires_grad_()
        given = inputs
        if packed:
            lengths = torch.tensor([5, 1, 3, 4, 2])
            first = options.get("batch_first", False)
            given = pack_padded_sequence(inputs, lengths, batch_first=first, enforce_sorted=False)
        output, state = own(given)
        if packed:
            output, _ = pad_packed_sequence(output)
        states = state if isinstance(state, tuple) else (state,)
        assert all(tensor.device.type == device for tensor in (output, *states))
        sum(tensor.square().sum() for tensor in (output, *states)).backward()
        results.append([output, *states, inputs.grad, *(p.grad for p in own.parameters())])
    for ours, theirs in zip(results[1], results[0], strict=True):
        torch.testing.assert_close(ours.cpu(), theirs, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("kind", [nn.LSTMCell, nn.GRUCell, nn.RNNCell])
def test_cells(kind: type[nn.RNNCellBase]) -> None:
    torch.manual_seed(0)
    module, x = kind(3, 4), torch.randn(2, 3)
    expected = module(x)
    got = copy.deepcopy(module).to("loom")(x.to("loom"))
    for ours, theirs in zip(*(r if isinstance(r, tuple) else (r,) for r in (got, expected)), strict=True):
        torch.testing.assert_close(ours.cpu(), theirs)


def test_projection_and_dropout() -> None:
    torch.manual_seed(0)
    projected, x = nn.LSTM(3, 4, proj_size=2), torch.randn(5, 2, 3)
    expected = projected(x)[0]
    torch.testing.assert_close(projected.to("loom")(x.to("loom"))[0].cpu(), expected)
    dropping = nn.GRU(3, 4, num_layers=2, dropout=0.5, device="loom")
    first, second = (dropping(x.to("loom"))[0] for _ in range(2))
    assert not torch.equal(first, second)
    assert torch.equal(dropping.eval()(x.to("loom"))[0], dropping(x.to("loom"))[0])


def test_packing_takes_lengths_that_are_not_contiguous():
    lengths = torch.tensor([3, 9, 2, 9, 1])[::2]
    padded = torch.randn(3, 3, 4)
    packed = torch.nn.utils.rnn.pack_padded_sequence(padded.to("loom"), lengths)
    expected = torch.nn.utils.rnn.pack_padded_sequence(padded, lengths)
    assert packed.batch_sizes.tolist() == expected.batch_sizes.tolist() == [3, 2, 1]
    assert torch.equal(packed.data.cpu(), expected.data)


@pytest.mark.parametrize("make", [nn.LSTM, nn.GRU, nn.RNN])
def test_an_input_of_the_host_is_named(make: type[nn.RNNBase]) -> None:
    with pytest.raises(RuntimeError, match="not at the same device, found input tensor at cpu"):
        make(2, 2).to("loom")(torch.ones(3, 1, 2))
