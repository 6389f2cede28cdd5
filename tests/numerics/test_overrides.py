"""Keys of overrides: what they fit, in which module, and that one that fits nothing is told."""

from __future__ import annotations

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional

from tests.numerics.inputs import random
from tests.numerics.models import transformer
from torch_loom.errors import FormatError
from torch_loom.numerics import DataFormat, compare, emulate, quantize

B8, B4, B2 = DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b


def is_in(values: Tensor, fmt: DataFormat) -> bool:
    return torch.equal(values, quantize(values, fmt))


@pytest.mark.parametrize(
    ("pattern", "told"),
    [
        ("linear1", r"no module and no function; near it: layers\.0\.linear1"),
        ("layer.*", "no module and no function; near it: layers"),
        ("sofmax", "no module and no function; near it: softmax"),
        ("layers.*:sofmax", "no function; near it: softmax"),
        ("layer.0:softmax", r"no module; near it: layers\.0"),
        ("norm1:", r"no module; near it: layers\.0\.norm1"),
        ("reshape", "no module and no function"),  # which changes no values
        (":softmax", "no module"),
        ("", "no module and no function"),
    ],
)
def test_a_pattern_that_fits_nothing_is_told(pattern: str, told: str) -> None:
    model, x = transformer(), random(2, 4, 32)
    with pytest.raises(FormatError, match=rf"overrides\['{pattern.replace('*', '.')}'\] fits {told}"):
        emulate(model, B8, overrides={"layers.0": B4, pattern: B4})
    with pytest.raises(FormatError, match="fits"):
        compare(model, x, [B8], overrides={pattern: B4})
    with (
        torch.no_grad(),
        pytest.warns(UserWarning, match=rf"fits {told}"),
        emulate(B8, overrides={"layers.0": B4, pattern: B4}),
    ):
        model(x)
    assert not any(part._forward_pre_hooks for part in model.modules())


def test_patterns_that_fit_are_not_told() -> None:
    model, x = transformer(), random(2, 4, 32)
    overrides = dict.fromkeys(
        ("layers.?.norm1:", "layers.*:softmax", "softmax", "layers.0.linear1", "*", "layers:*", "norm"), B4
    )
    with warnings.catch_warnings(), torch.no_grad():
        warnings.simplefilter("error")
        emulate(model, B8, overrides=overrides)(x)
        with emulate(B8, overrides=overrides) as emulation:
            model(x)
        with emulation:  # told once, and nothing of the modules that ran before is forgotten
            pass
    with pytest.raises(ZeroDivisionError), emulate(B8, overrides={"head": B4}):
        raise ZeroDivisionError  # this is told, and no more


def test_a_module_that_fails_ends_its_override() -> None:
    class Failing(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            raise ValueError("refused")

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.part = Failing()
            self.refused = nn.ReLU()
            self.refused.register_forward_pre_hook(_refuse)

        def forward(self, x: Tensor) -> Tensor:
            for each in (self.part, self.refused):
                with pytest.raises(ValueError, match="refused"):
                    each(x)
            return x * 1.01

    model, x = Model(), random(4, 32)
    with emulate(B8):
        wanted = x * 1.01
    overrides = {"part": B2, "refused": B2}
    assert torch.equal(emulate(model, B8, overrides=overrides)(x), wanted)
    with emulate(B8, overrides=overrides):
        assert torch.equal(model(x), wanted)


def _refuse(module: nn.Module, args: Any) -> None:
    raise ValueError("refused")


class Caller(nn.Module):
    """Calls a module that is registered elsewhere."""

    def __init__(self, other: nn.Module) -> None:
        super().__init__()
        self.other = [other]

    def forward(self, x: Tensor) -> Tensor:
        self.other[0](x)
        return x * 1.01


@pytest.mark.parametrize("style", ["module", "context"])
def test_the_path_is_that_of_the_module_that_runs(style: str) -> None:
    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.act = nn.ReLU()
            self.caller = Caller(self.act)

        def forward(self, x: Tensor) -> Tensor:
            return self.caller(x)

    class Shared(nn.Module):
        """One layer at two paths."""

        def __init__(self) -> None:
            super().__init__()
            torch.manual_seed(0)
            self.left = nn.Sequential(nn.Linear(32, 32))
            self.right = nn.Sequential(self.left[0])

        def forward(self, x: Tensor) -> tuple[Tensor, Tensor]:
            return self.left(x), self.right(x)

    x = random(4, 32)

    def run(model: nn.Module, **overrides: DataFormat) -> Any:
        given = {name.replace("_", "."): fmt for name, fmt in overrides.items()}
        if style == "module":
            return emulate(model, B8, overrides=given)(x)
        with emulate(B8, overrides=given):
            return model(x)

    assert is_in(run(Model(), caller=B2), B2)
    left, right = run(Shared(), right_0=B2)
    assert is_in(right, B2)
    assert not is_in(left, B2)


def test_functions_of_every_module_of_pytorch_go_by_their_names() -> None:
    x, w = random(4, 32), random(32, 16)
    with emulate(B8):
        # As those of torch and torch.nn.functional: products have the fidelity, norms and softmax 16 bits.
        assert torch.equal(torch.linalg.matmul(x, w), x @ w)
        assert torch.equal(torch.special.softmax(x, -1), functional.softmax(x, -1))
        norms = torch.linalg.vector_norm(x, dim=0)
    assert is_in(norms, DataFormat.Float16_b)
    assert not is_in(norms, B8)
    with emulate(B8, overrides={"vector_norm": B4, "fft": None}):
        assert is_in(torch.linalg.vector_norm(x, dim=0), B4)
        assert torch.equal(torch.fft.fft(x), torch.fft.fft(x))


def test_any_module_is_the_whole_model_too() -> None:
    class Alone(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return functional.softmax(x, -1)

    x = random(2, 32)
    assert is_in(emulate(Alone(), B8, overrides={"*:softmax": B4})(x), B4)
