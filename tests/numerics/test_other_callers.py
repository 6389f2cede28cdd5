"""Programs that compute past a mode: checkpoints, TorchScript, derivatives, parameters that are swapped."""

from __future__ import annotations

import copy
import gc
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.autograd import forward_ad
from torch.nn import functional
from torch.utils.checkpoint import checkpoint

from tests.numerics.inputs import random
from torch_loom.errors import OperandError
from torch_loom.numerics import BlockScaled, DataFormat, emulate, tensor_core
from torch_loom.numerics.emulation.operands import Weights

WEIGHT = random(256, 256, seed=1) / 16
HEADS = random(2, 2, 24, 16, seed=2)


def attention(x: Tensor) -> Tensor:
    return functional.scaled_dot_product_attention(x, x, x)


def projected(x: Tensor) -> Tensor:
    return torch.sin(torch.exp(x @ WEIGHT.to(x.dtype)) * 3)


def attended(x: Tensor) -> Tensor:
    return torch.sin(3 * attention(x))


MODES: dict[str, tuple[Callable[[], AbstractContextManager[Any]], torch.dtype]] = {
    "tensor cores": (lambda: tensor_core(chip="h100", split_k=3), torch.float16),
    "silicon": (lambda: emulate(DataFormat.Bfp8_b, mode="silicon"), torch.float32),
    "fast": (lambda: emulate(DataFormat.Bfp4_b), torch.float32),
}


@pytest.mark.parametrize("is_inside", [True, False])
@pytest.mark.parametrize("call", [projected, attended])
@pytest.mark.parametrize("mode", MODES)
def test_checkpoints_compute_again_under_the_mode(
    mode: str, call: Callable[[Tensor], Tensor], is_inside: bool
) -> None:
    entered, dtype = MODES[mode]

    def gradient(**how: bool) -> Tensor:
        x = (random(16, 256) if call is projected else HEADS).to(dtype, copy=True).requires_grad_()
        with entered():
            out = checkpoint(call, x, **how) if how else call(x)
            loss = out.float().square().sum()
            if is_inside:
                loss.backward()
        if not is_inside:
            loss.backward()
        assert x.grad is not None
        return x.grad

    wanted = gradient()
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for use_reentrant in (True, False):
            assert torch.equal(gradient(use_reentrant=use_reentrant), wanted)


def test_a_checkpoint_in_a_wrapped_module_computes_again_under_the_mode() -> None:
    class Checked(nn.Module):
        def forward(self, x: Tensor) -> Any:
            return checkpoint(attended, x, use_reentrant=True)

    x, plain = (HEADS.to(torch.float16, copy=True).requires_grad_() for _ in range(2))
    tensor_core(Checked(), chip="v100")(x).float().sum().backward()
    with tensor_core(chip="v100"):
        out = attended(plain)
    out.float().sum().backward()
    assert x.grad is not None
    assert plain.grad is not None
    assert torch.equal(x.grad, plain.grad)


@pytest.fixture(scope="module")
def scripts() -> dict[str, Any]:
    layer = nn.Linear(256, 4)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return {
            "function": torch.jit.script(projected_plainly),
            "module": torch.jit.script(layer),
            "trace": torch.jit.trace(layer, torch.ones(1, 256)),
            "attention": torch.jit.script(attention),
            "around attention": torch.jit.trace(Around(), HEADS),
        }


def projected_plainly(x: Tensor) -> Tensor:
    return torch.mm(x, torch.ones(256, 4, dtype=x.dtype))


class Around(nn.Module):
    def forward(self, x: Tensor) -> Tensor:
        return attention(x) + 1


@pytest.mark.parametrize("name", ["function", "module", "trace"])
def test_scripts_have_matrix_instructions_and_no_formats_of_tensix(
    name: str, scripts: dict[str, Any]
) -> None:
    script, x = scripts[name], random(2, 256)
    with torch.no_grad():
        plain = script(x)
        with emulate(DataFormat.Bfp8_b), warnings.catch_warnings(record=True) as said:
            warnings.simplefilter("always")
            script(x)
            script(x)
        assert ["is compiled by TorchScript" in str(each.message) for each in said] == [True]
        with tensor_core(chip="h100", tf32=True):
            narrow = script(x)
        assert not torch.equal(narrow, plain)
        torch.testing.assert_close(narrow, plain, rtol=1e-2, atol=1e-2)
        assert torch.equal(script(x), plain)


@pytest.mark.parametrize("name", ["attention", "around attention"])
def test_scripts_with_attention_are_refused(name: str, scripts: dict[str, Any]) -> None:
    plain = scripts[name](HEADS)
    with tensor_core(chip="h100"), pytest.raises(OperandError, match="attention in it, whose sums would be"):
        scripts[name](HEADS)
    assert torch.equal(scripts[name](HEADS), plain)


def second_order() -> None:
    x = HEADS.half().requires_grad_()
    torch.autograd.grad(attention(x).float().square().sum(), x, create_graph=True)


def forward_mode() -> None:
    with forward_ad.dual_level():
        attention(forward_ad.make_dual(HEADS.half(), HEADS.half()))


def mask_under_vmap() -> None:
    x = HEADS.half()
    torch.func.vmap(lambda mask: functional.scaled_dot_product_attention(x, x, x, mask))(
        torch.zeros(3, 24, 24, dtype=torch.float16)
    )


@pytest.mark.parametrize(
    ("call", "told"),
    [
        (second_order, "gradients of gradients"),
        (forward_mode, "derivatives in forward mode"),
        (mask_under_vmap, "transforms of torch.func"),
        (lambda: torch.func.vmap(attention)(HEADS.half()), "transforms of torch.func"),
        (lambda: torch.func.jvp(attention, (HEADS.half(),), (HEADS.half(),)), "transforms of torch.func"),
        (lambda: torch.func.grad(lambda x: attention(x).float().sum())(HEADS.half()), "transforms"),
    ],
)
def test_derivatives_of_attention_without_a_rule_are_refused(call: Callable[[], None], told: str) -> None:
    with (
        tensor_core(chip="h100"),
        pytest.raises(
            OperandError, match=f"scaled_dot_product_attention: .*{told}.* no rule on h100; allowed"
        ),
    ):
        call()


def test_recurrent_layers_have_the_format() -> None:
    """The CPU has one kernel for a whole LSTM."""
    layer, x = nn.LSTM(32, 32).eval(), random(4, 2, 32)
    before = torch._C._get_mkldnn_enabled()
    with torch.no_grad():
        plain = layer(x)[0]
        narrow = tensor_core(layer, chip="b200", format=BlockScaled.NVFP4)(x)[0]
        assert torch.equal(layer(x)[0], plain)
    assert 0.01 < (narrow - plain).norm() / plain.norm() < 0.5
    assert torch._C._get_mkldnn_enabled() is before


def test_parameters_of_an_emulated_module_may_be_swapped() -> None:
    layer, other, x = nn.Linear(32, 8), nn.Linear(32, 8), random(2, 32)
    wrapped = emulate(layer, DataFormat.Bfp8_b)
    with torch.no_grad():
        first, second = wrapped(x), emulate(copy.deepcopy(other), DataFormat.Bfp8_b)(x)
        for own, new in zip(layer.parameters(), other.parameters(), strict=True):
            torch.utils.swap_tensors(own, new)
        assert torch.equal(wrapped(x), second)
        assert not torch.equal(first, second)


def test_what_is_kept_of_parameters_goes_with_them() -> None:
    weights, how = Weights(), emulate(DataFormat.Bfp8_b).settings.default
    with torch.no_grad():
        for _ in range(200):
            weights.get(nn.Parameter(torch.ones(16)), how)
            gc.collect(0)
        stays = nn.Parameter(torch.ones(16))
        for _ in range(2):
            assert torch.equal(weights.get(stays, how), stays)
        stays.data.fill_(3.0)
        assert (weights.get(stays, how) == 3).all()
    assert len(weights._kept) <= 65
