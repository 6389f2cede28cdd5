"""torch.loom.amp: PyTorch's mixed precision, for these devices without naming them."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch
from torch import Tensor, nn

import torch_loom.device as loom

PROGRAMS = Path(__file__).parent / "programs" / "amp"


@pytest.mark.exercises("torch.cuda.amp.autocast")
def test_autocast_casts_on_these_devices_only() -> None:
    x = torch.ones(2, 2, device="loom")
    with loom.amp.autocast():
        assert (x @ x).dtype == torch.float16
        assert (x.cpu() @ x.cpu()).dtype == torch.float32
        with loom.amp.autocast(dtype=torch.bfloat16):
            assert (x @ x).dtype == torch.bfloat16
        with loom.amp.autocast(enabled=False):
            assert (x @ x).dtype == torch.float32

    @loom.amp.autocast(True, torch.bfloat16)
    def product() -> Tensor:
        return x @ x

    assert product().dtype == torch.bfloat16
    assert (x @ x).dtype == torch.float32


@pytest.mark.exercises("torch.cuda.amp.GradScaler")
def test_grad_scaler_finds_what_is_not_finite() -> None:
    parameter = torch.nn.Parameter(torch.ones(2, device="loom"))
    optimizer = torch.optim.SGD([parameter], lr=1.0)
    scaler = loom.amp.GradScaler(init_scale=8.0, growth_interval=1)
    for gradient, scale, value in ((2.0, 16.0, -1.0), (float("inf"), 8.0, -1.0)):
        optimizer.zero_grad()
        scaler.scale((parameter * gradient).sum()).backward()
        scaler.step(optimizer)
        scaler.update()
        assert scaler.get_scale() == scale
        assert parameter.tolist() == [value, value]
    assert not loom.amp.GradScaler(enabled=False).is_enabled()


@pytest.mark.exercises("torch.cuda.amp.custom_fwd", "torch.cuda.amp.custom_bwd")
def test_functions_of_ones_own_choose_their_precision() -> None:
    seen = []

    class Product(torch.autograd.Function):
        @staticmethod
        @loom.amp.custom_fwd(cast_inputs=torch.float32)
        def forward(ctx: object, x: Tensor) -> Tensor:
            seen.append((x.dtype, torch.is_autocast_enabled("loom")))
            return x * 2

        @staticmethod
        @loom.amp.custom_bwd
        def backward(ctx: object, gradient: Tensor) -> Tensor:
            seen.append((gradient.dtype, torch.is_autocast_enabled("loom")))
            return gradient * 2

    x = torch.ones(2, device="loom", dtype=torch.float16, requires_grad=True)
    with loom.amp.autocast():
        y = Product.apply(x)
    y.sum().backward()
    assert y.dtype == torch.float32
    assert seen == [(torch.float32, False), (torch.float32, False)]
    assert x.grad is not None
    assert x.grad.tolist() == [2, 2]


@pytest.mark.exercises("torch.cuda.amp.amp_definitely_not_available")
def test_whether_mixed_precision_is_out_of_the_question(fork_loom) -> None:  # type: ignore[no-untyped-def]
    assert loom.amp.amp_definitely_not_available() is False
    fork_loom(PROGRAMS / "whether_mixed_precision_is_out_of_the_question.py", {"TORCH_LOOM_DEVICES": "0"})


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN], ids=lambda kind: kind.__name__)
@pytest.mark.parametrize("packed", [False, True])
def test_recurrent_layers_have_low_precision(kind: type[nn.RNNBase], packed: bool) -> None:
    torch.manual_seed(0)
    layer, x = kind(4, 3, num_layers=2, bidirectional=True).to("loom"), torch.randn(5, 2, 4, device="loom")
    expected = layer(x)[0]
    given = nn.utils.rnn.pack_padded_sequence(x, torch.tensor([5, 5])) if packed else x
    with torch.autocast("loom", dtype=torch.bfloat16):
        out, state = layer(given)
    out = out.data.view(expected.shape) if packed else out
    states = state if isinstance(state, tuple) else (state,)
    assert {tensor.dtype for tensor in (out, *states)} == {torch.bfloat16}
    torch.testing.assert_close(out.float(), expected, rtol=0.05, atol=0.05)
    out.float().sum().backward()
    assert {p.grad.dtype for p in layer.parameters() if p.grad is not None} == {torch.float32}
