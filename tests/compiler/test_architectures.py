"""Architectures of transformers, compiled: eager's bits, training included, and near under block floats."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest
import torch
from torch.utils import _pytree as pytree

import torch_loom
from tests.compiler.architectures import ARCHITECTURES
from torch_loom.numerics import pcc

pytestmark = [
    pytest.mark.slow,
    pytest.mark.timeout(300),
    pytest.mark.usefixtures("exported_once", "plain_configuration"),
]

# The others, which take long or are near to one of these, are run by `-m conformance`. For FLOAT Inductor
# compiles C++.
EXACT = (
    "albert",
    "bert",
    "convnext",
    "gpt2",
    "llama",
    "mobilenet_v2",
    "resnet",
    "segformer",
    "swin",
    "t5",
    "vit",
)
FLOAT = ("llama", "resnet")
TRAINED = ("bert", "distilbert", "gpt2", "llama", "t5", "vit", "resnet", "swin")


@pytest.fixture(autouse=True)
def _libraries() -> None:
    pytest.importorskip("transformers", reason="the extra 'examples' is not installed")


@pytest.fixture(autouse=True)
def _forgotten() -> Iterator[None]:
    yield
    torch.compiler.reset()


def tensors(value: object) -> list[torch.Tensor]:
    leaves = [leaf for leaf in pytree.tree_leaves(value) if isinstance(leaf, torch.Tensor)]
    assert leaves
    return [leaf.detach().cpu() for leaf in leaves]


def some_of(names: tuple[str, ...]) -> list[Any]:
    return [
        name if name in names else pytest.param(name, marks=pytest.mark.conformance) for name in ARCHITECTURES
    ]


@pytest.mark.parametrize("name", some_of(EXACT))
def test_exact_has_eagers_bits_and_block_floats_are_near(name: str) -> None:
    net, inputs = ARCHITECTURES[name]()
    net.to("loom")
    given = {key: value.to("loom") for key, value in inputs.items()}
    with torch.no_grad():
        expected = tensors(dict(net(**given)))
    run = torch_loom.compile(net, (), given, chip="wormhole_b0")
    for _ in range(3):  # as issued, captured, replayed
        got = tensors(run(**given))
        assert len(got) == len(expected)
        assert all(torch.equal(one, other) for one, other in zip(got, expected, strict=True))
    near = torch_loom.compile(
        net, (), given, chip="wormhole_b0", default_df_override="Bfp8_b", math_fidelity="HiFi2"
    )
    for tensor, other in zip(tensors(near(**given)), expected, strict=True):
        assert not torch.equal(tensor, other)
        assert pcc(tensor, other) >= 0.99


@pytest.mark.parametrize("name", some_of(FLOAT))
def test_float_is_close(name: str) -> None:
    net, inputs = ARCHITECTURES[name]()
    net.to("loom")
    given = {key: value.to("loom") for key, value in inputs.items()}
    run = torch.compile(net, backend="loom", options={"numerics": "float"})
    with torch.no_grad():
        for tensor, other in zip(tensors(dict(run(**given))), tensors(dict(net(**given))), strict=True):
            torch.testing.assert_close(tensor, other, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("name", TRAINED)
def test_a_training_step_has_eagers_bits(name: str) -> None:
    net, inputs = ARCHITECTURES[name]()
    net.to("loom")
    given = {key: value.to("loom") for key, value in inputs.items()}

    def gradients(run: torch.nn.Module) -> dict[str, torch.Tensor]:
        net.zero_grad()
        outputs = pytree.tree_leaves(dict(run(**given)))
        sum(output.square().mean() for output in outputs if output.requires_grad).backward()
        return {key: value.grad.cpu() for key, value in net.named_parameters() if value.grad is not None}

    expected = gradients(net)
    assert len(expected) > 5
    got = gradients(torch.compile(net, backend="loom"))
    assert got.keys() == expected.keys()
    assert [key for key in got if not torch.equal(got[key], expected[key])] == []
