"""The chip decides which kernels are fused: not the engine, so a dry run issues what a real run does."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

from torch_loom import _C, chips
from torch_loom.chips.core import SIZES
from torch_loom.ops import FUSED_KERNELS

PROGRAMS = Path(__file__).parent / "programs" / "fused_kernels"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

Commands = dict[str, list[str]]

LAUNCHES = {
    "auto": {"TORCH_LOOM_LAUNCH": "auto"},
    "blocking": {"TORCH_LOOM_LAUNCH": "blocking"},
    "chaos": {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": "3"},
}


def chip_without(folder: Path, *lacking: str) -> str:
    """Returns the path of a chip like loom1 that lacks some fused kernels."""
    text = (Path(chips.__file__).parent / "loom1.toml").read_text()
    had = next(line for line in text.splitlines() if line.startswith("fused_kernels = ["))
    left = [name for name in FUSED_KERNELS if name in had and name not in lacking]
    path = folder / f"without_{'_'.join(lacking)}.toml"
    path.write_text(text.replace(had, f"fused_kernels = {json.dumps(left)}"))
    return str(path)


def training_commands(fork_loom: PythonRunner, **env: str) -> Commands:
    commands: Commands = json.loads(fork_loom(PROGRAMS / "training.py", env).stdout.splitlines()[-1])
    return commands


def assert_same(found: Commands, expected: Commands) -> None:
    assert found.keys() == expected.keys()
    for name in expected:
        ours, theirs = Counter(found[name]), Counter(expected[name])
        assert ours == theirs, (name, ours - theirs, theirs - ours)
        assert found[name] == expected[name], name


@pytest.fixture(scope="module")
def reference(fork_loom: PythonRunner) -> Commands:
    return training_commands(fork_loom, TORCH_LOOM_DRIVER="virtual")


@pytest.mark.slow
@pytest.mark.parametrize("launch", LAUNCHES)
@pytest.mark.parametrize("driver", ["virtual", "null"])
def test_every_driver_and_launch_mode_issues_the_same_training(
    fork_loom: PythonRunner, reference: Commands, driver: str, launch: str
) -> None:
    assert_same(training_commands(fork_loom, TORCH_LOOM_DRIVER=driver, **LAUNCHES[launch]), reference)


@pytest.mark.slow
def test_a_chip_with_all_kernels_issues_them(reference: Commands) -> None:
    transformer, recurrent = Counter(reference["transformer"]), Counter(reference["recurrent"])
    fused = "aten::_scaled_dot_product_fused_attention_overrideable"
    # Two calls and that of the encoder layer, in two steps.
    assert transformer[fused] == transformer[f"{fused}_backward"] == 6
    assert transformer["aten::_fused_adam_"] == 2
    assert not {"aten::_softmax", "aten::_safe_softmax", "aten::bmm"} & transformer.keys()
    # Two directions of two layers; in the low precision of the first step, and for GRU, cells: 5 a step.
    assert recurrent["aten::mkldnn_rnn_layer"] == recurrent["aten::mkldnn_rnn_layer_backward"] == 4
    assert recurrent["aten::_thnn_fused_lstm_cell"] == 4 * 5
    assert recurrent["aten::_thnn_fused_gru_cell"] == recurrent["aten::_thnn_fused_gru_cell_backward"] == 10
    assert any(name.startswith("aten::_foreach_") for name in reference["embedding"])


@pytest.mark.slow
@pytest.mark.parametrize("driver", ["virtual", "null"])
def test_a_chip_without_kernels_issues_their_parts(
    fork_loom: PythonRunner, reference: Commands, tmp_path: Path, driver: str
) -> None:
    chip = chip_without(tmp_path, *FUSED_KERNELS)
    found = training_commands(fork_loom, TORCH_LOOM_DRIVER=driver, TORCH_LOOM_CHIP=chip)
    names = {name for commands in found.values() for name in commands}
    assert not [name for name in names if "fused" in name or "foreach" in name or "rnn_layer" in name]
    assert found["mlp"] != reference["mlp"]
    if driver == "null":
        virtual = training_commands(fork_loom, TORCH_LOOM_DRIVER="virtual", TORCH_LOOM_CHIP=chip)
        assert_same(found, virtual)


@pytest.mark.slow
def test_each_figure_stands_for_its_own_kernel(fork_loom: PythonRunner, tmp_path: Path) -> None:
    lacking = ("attention_dropout", "rnn_layer")
    chip = chip_without(tmp_path, *lacking)
    found = training_commands(fork_loom, TORCH_LOOM_DRIVER="null", TORCH_LOOM_CHIP=chip)
    transformer, recurrent = Counter(found["transformer"]), Counter(found["recurrent"])
    # The masked call has no dropout.
    assert transformer["aten::_scaled_dot_product_fused_attention_overrideable"] == 2
    assert recurrent["aten::mkldnn_rnn_layer"] == 0
    assert recurrent["aten::_thnn_fused_lstm_cell"] == 2 * 4 * 5
    assert transformer["aten::_fused_adam_"] == 2


def test_core_and_descriptions_know_the_same_kernels() -> None:
    figures = {"dtypes": (), "amp_dtypes": (), "native_ops": None, "lazy_memory": False, "memory_bytes": 1}
    numbers = {"capability_major": 1, "capability_minor": 0, "num_cores": 1, "clock_mhz": 1}
    figures |= {"deterministic": True, "is_gpu": False, "random_grid": (1, 2048, True, False)}
    figures["sizes"] = dict.fromkeys(SIZES, 1)
    chip = _C.Chip(name="x", description="x", **figures, **numbers, fused_kernels=list(FUSED_KERNELS))  # type: ignore[arg-type]
    assert chip.fused_kernels == list(FUSED_KERNELS)
    with pytest.raises(ValueError, match="fused_kernels: unknown name"):
        _C.Chip(name="x", description="x", **figures, **numbers, fused_kernels=["attention", "typo"])  # type: ignore[arg-type]


# What the parts compute, against PyTorch's own kernels.


def make_attention(heads: int, dtype: torch.dtype) -> list[torch.Tensor]:
    torch.manual_seed(0)
    return [torch.randn(2, count, 5, 4, dtype=dtype) for count in (4, heads, heads)]


@pytest.mark.parametrize("heads", [4, 2, 1])
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16])
@pytest.mark.parametrize("bias", ["none", "causal", "bool", "trained"])
def test_attention_is_the_cpus(heads: int, dtype: torch.dtype, bias: str) -> None:
    results = []
    for device in ("cpu", "loom"):
        torch.manual_seed(1)
        mask = {"bool": torch.rand(5, 5) > 0.3, "trained": torch.randn(4, 5, 5, dtype=dtype)[None]}.get(bias)
        inputs = [x.to(device, copy=True).requires_grad_() for x in make_attention(heads, dtype)]
        if mask is not None:
            mask = mask.to(device, copy=True).requires_grad_(bias == "trained")
        out = torch.nn.functional.scaled_dot_product_attention(
            *inputs, mask, is_causal=bias == "causal", enable_gqa=heads != 4
        )
        out.double().square().sum().backward()
        grads = [x.grad for x in (*inputs, mask) if x is not None and x.requires_grad]
        results.append([out.detach(), *grads])
    tolerance = 5e-2 if dtype == torch.bfloat16 else 1e-5
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert ours is not None
        torch.testing.assert_close(ours.cpu(), theirs, rtol=tolerance, atol=tolerance)


@pytest.mark.parametrize("scale", [None, 3.0, -0.5])
@pytest.mark.parametrize("heads", [4, 2])
def test_gradients_beside_a_trained_mask_round_as_the_cpus(heads: int, scale: float | None) -> None:
    """The CPU multiplies query and key by the root of the scale, which rounds otherwise than the product."""
    mask, upstream = torch.randn(5, 5, generator=torch.Generator().manual_seed(1)), torch.arange(160.0)
    results = []
    for device in ("cpu", "loom"):
        inputs = [x.to(device).requires_grad_() for x in (*make_attention(heads, torch.float32), mask)]
        out = torch.nn.functional.scaled_dot_product_attention(*inputs, scale=scale, enable_gqa=heads != 4)
        grads = torch.autograd.grad(out, inputs, upstream.view(2, 4, 5, 4).to(device))
        results.append([grad.cpu() for grad in grads])
    for ours, theirs in zip(results[1], results[0], strict=True):
        assert torch.equal(ours, theirs)


def test_attention_with_dropout_has_the_gradient_of_what_it_computed() -> None:
    torch.manual_seed(0)
    inputs = [torch.randn(1, 2, 6, 4, dtype=torch.float64, device="loom").requires_grad_() for _ in range(3)]

    def attention(*tensors: torch.Tensor) -> torch.Tensor:
        torch.loom.manual_seed(5)
        return torch.nn.functional.scaled_dot_product_attention(*tensors, dropout_p=0.4)

    assert not torch.equal(attention(*inputs), torch.nn.functional.scaled_dot_product_attention(*inputs))
    assert torch.autograd.gradcheck(attention, inputs)


def test_attention_with_dropout_keeps_the_mean() -> None:
    torch.loom.manual_seed(0)
    query, value = torch.zeros(1, 1, 400, 4, device="loom"), torch.ones(1, 1, 400, 4, device="loom")
    out = torch.nn.functional.scaled_dot_product_attention(query, query, value, dropout_p=0.25)
    assert out.std() > 0.01
    assert abs(out.mean().item() - 1) < 0.01


@pytest.mark.slow
@pytest.mark.parametrize("name", ["Adam", "AdamW", "SGD", "Adagrad"])
def test_parts_of_an_optimizer_compute_what_the_kernel_does(
    fork_loom: PythonRunner, tmp_path: Path, name: str
) -> None:
    fork_loom(
        PROGRAMS / "parts_of_an_optimizer_compute_what_the_kernel_does.py",
        {"TORCH_LOOM_CHIP": chip_without(tmp_path, "optimizer")},
        given=name,
    )
