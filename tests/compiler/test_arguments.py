"""What a model is compiled for: tensors wherever they are, constants, and parameters that autograd knows."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy
import pytest
import torch
from torch import nn

import torch_loom
from torch_loom import numerics
from torch_loom.errors import CompilerOptionError, ExportError, ImageError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pytestmark = pytest.mark.usefixtures("plain_configuration")


class Scaled(nn.Module):
    def forward(
        self, x: torch.Tensor, n: float = 2, mask: torch.Tensor | None = None, kind: str = "mul"
    ) -> torch.Tensor:
        y = x * n if kind == "mul" else x + n
        return y if mask is None else y.masked_fill(mask, 0.0)


X = torch.arange(6.0).view(2, 3)


def test_constants_are_part_of_what_is_compiled(tmp_path: Path) -> None:
    run = torch_loom.compile(Scaled(), (X, 3, None), {"kind": "add"})
    run.save(tmp_path / "a.loom")
    for one in (run, torch_loom.Executable.load(tmp_path / "a.loom")):
        assert one(X, 3, None, kind="add").cpu().equal(X + 3)
        with pytest.raises(ValueError, match=r"compiled for 3, but got 4"):
            one(X, 4, None, kind="add")
        with pytest.raises(ValueError, match=r"compiled for 3, but got 3\.0"):
            one(X, 3.0, None, kind="add")
        with pytest.raises(ValueError, match=r"'add', but got 'mul'"):
            one(X, 3, None, kind="mul")
        with pytest.raises(ValueError, match=r"compiled for the arguments \(a tensor, 3, None, 'add'\)"):
            one(X)
        with pytest.raises(ValueError, match=r"a tensor, 3, None, 'add'.*got \(a tensor, 3, a tensor, 'add'"):
            one(X, 3, X > 1, kind="add")


@pytest.mark.parametrize("value", [2, 2.5, True, -1, float("inf")])
def test_constants_of_each_kind(value: float) -> None:
    run = torch_loom.compile(Scaled(), (X,), {"n": value})
    torch.testing.assert_close(run(X, n=value).cpu(), X * value, rtol=0, atol=0, equal_nan=True)


class Difference(nn.Module):
    def forward(self, pair: dict[str, torch.Tensor], third: torch.Tensor) -> torch.Tensor:
        return pair["a"] - pair["b"] + 10 * third


def test_operands_go_by_their_names() -> None:
    run = torch_loom.compile(Difference(), ({"a": X, "b": X},), {"third": X})
    zeros = torch.zeros_like(X)
    assert run({"b": zeros, "a": X}, third=zeros).cpu().equal(X), "in another order"
    positional = torch_loom.compile(Difference(), ({"a": X, "b": X}, X))
    with pytest.raises(ValueError, match=r"\['third', 'pair'\] are no keywords that it was compiled with"):
        positional(third=X, pair={"a": X, "b": X})


def test_defaults_may_be_left_out() -> None:
    assert torch_loom.compile(Scaled(), (X, 2, None))(X).cpu().equal(X * 2)
    plain = torch_loom.compile(Scaled(), (X,))
    assert plain(X).cpu().equal(X * 2)
    with pytest.raises(ValueError, match=r"compiled for the arguments \(a tensor\), but got \(a tensor, 5\)"):
        plain(X, 5)


def test_the_order_of_keywords_does_not_matter() -> None:
    class Minus(nn.Module):
        def forward(self, *, a: torch.Tensor, b: torch.Tensor) -> torch.Tensor:
            return a - b

    run = torch_loom.compile(Minus(), (), {"a": X, "b": X * 3})
    assert run(b=X * 3, a=X).cpu().equal(X - X * 3)


def test_constants_are_in_the_key_of_the_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", str(tmp_path))
    for n in (2, 3, 2):
        run = torch_loom.compile(Scaled(), (X, n))
        assert run(X, n).cpu().equal(X * n)
        with pytest.raises(ValueError, match="compiled for"):
            run(X, 4)
    assert len(list(tmp_path.glob("*.loomc"))) == 2


def test_samples_are_moved_to_the_module() -> None:
    net = nn.Linear(3, 2)
    for module, sample in ((net, X.to("loom")), (nn.Linear(3, 2).to("loom"), X), (net, X.to("meta"))):
        assert torch_loom.compile(module, (sample,))(X).cpu().equal(module.to("loom")(X.to("loom")).cpu())
        module.cpu()


@pytest.mark.parametrize(
    ("module", "sample", "message"),
    [
        (nn.Linear(3, 2), X.numpy(), r"sample_inputs\[0\] is a numpy.ndarray; give a tensor"),
        (nn.Linear(3, 2), {1}, r"sample_inputs\[0\] is a set; expected tensors"),
        (nn.Linear(3, 2, device="meta"), X, r"meta device.*to_empty"),
    ],
)
def test_what_is_no_sample_is_told(module: nn.Module, sample: Any, message: str) -> None:
    assert isinstance(X.numpy(), numpy.ndarray)
    with pytest.raises(CompilerOptionError, match=message):
        torch_loom.compile(module, (sample,))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"device": 3}, r"device=3: .* such as loom:0"),
        ({"device": []}, r"device=\[\]: .* such as loom:0"),
        ({"device": "foo"}, r"device='foo': .* such as loom:0"),
        ({"device": "loom:99"}, r"device='loom:99': there are \d+ devices.*TORCH_LOOM_DEVICES"),
        ({"num_chips": True}, r"num_chips=True: it takes a number from 1 to"),
    ],
)
def test_devices_and_numbers_that_are_none_are_told(
    options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(CompilerOptionError, match=message):
        torch_loom.compile(nn.ReLU(), (X,), **options)
    if "device" in options:
        torch_loom.compile(nn.ReLU(), (X,)).save(tmp_path / "relu.loom")
        with pytest.raises(ImageError, match=message):
            torch_loom.Executable.load(tmp_path / "relu.loom", **options)


@dataclass
class Result:
    y: torch.Tensor


class OfAClass(nn.Module):
    def forward(self, x: torch.Tensor) -> Result:
        return Result(x + 1)


def test_results_of_an_unknown_class_are_told() -> None:
    with pytest.raises(ExportError, match=r"instance of .*Result: .*register_dataclass"):
        torch_loom.compile(OfAClass(), (X,))


class Attention(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.inner = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.inner(x, x, x, need_weights=False)[0]


@pytest.mark.long
@pytest.mark.parametrize(
    "maker",
    [Attention, lambda: nn.TransformerEncoderLayer(32, 4, 64, dropout=0.0, batch_first=True)],
    ids=["attention", "layer"],
)
def test_results_of_attention_are_eagers_bits(maker: Callable[[], nn.Module], tmp_path: Path) -> None:
    # ATen multiplies operands that are not contiguous by another kernel where the weights require gradients.
    torch.manual_seed(0)
    net, x = maker().to("loom"), torch.randn(2, 9, 32, device="loom")
    run = torch_loom.compile(net, (x,))
    run.save(tmp_path / "a.loom")
    wanted = net(x)
    for one in (run, torch_loom.Executable.load(tmp_path / "a.loom")):
        result = one(x)
        assert torch.equal(result, wanted)
        assert not result.requires_grad
    with torch.no_grad():
        assert torch.equal(run(x), net(x))
    net.requires_grad_(False)
    assert torch.equal(torch_loom.compile(net, (x,))(x), net(x))


@pytest.mark.parametrize(
    "maker",
    [
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True),
        lambda: nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, activation="gelu", norm_first=True),
        lambda: nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 2),
    ],
    ids=["layer", "gelu", "encoder"],
)
@pytest.mark.long
def test_a_layer_runs_as_one_op_where_eagers_does(maker: Callable[[], nn.Module], tmp_path: Path) -> None:
    torch.manual_seed(0)
    net, x = maker().to("loom").eval(), torch.randn(2, 9, 32, device="loom")
    with_gradients = torch_loom.compile(net, (x,))
    with torch.no_grad():
        run = torch_loom.compile(net, (x,))
        wanted = net(x)
    run.save(tmp_path / "a.loom")
    for one in (run, torch_loom.Executable.load(tmp_path / "a.loom")):
        assert torch.equal(one(x), wanted)
        assert torch.equal(one(x), wanted)
    assert torch.equal(with_gradients(x), net(x))
    assert run.num_ops < with_gradients.num_ops
    # Nothing is left of it: eager mode still chooses.
    assert not any("forward" in vars(module) for module in net.modules())
    with torch.no_grad():
        torch.backends.mha.set_fastpath_enabled(False)
        try:
            assert torch.equal(torch_loom.compile(net, (x,))(x), net(x))
        finally:
            torch.backends.mha.set_fastpath_enabled(True)


@pytest.mark.long
def test_a_layer_that_is_one_op_takes_masks() -> None:
    torch.manual_seed(0)
    net = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True).to("loom").eval()
    x = torch.randn(2, 9, 32, device="loom")
    hidden = torch.zeros(2, 9, dtype=torch.bool, device="loom")
    hidden[1, 5:] = True
    with torch.inference_mode():
        wanted = net(x, src_key_padding_mask=hidden)
        run = torch_loom.compile(net, (x,), {"src_key_padding_mask": hidden})
        assert torch.equal(run(x, src_key_padding_mask=hidden), wanted)
        assert not torch.equal(wanted, net(x))


def test_a_parameter_that_is_returned_requires_no_gradient() -> None:
    class Gives(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(2, 3))

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return x + 1, self.weight, self.weight.T

    run = torch_loom.compile(Gives(), (X,))
    for _ in range(4):
        assert not any(one.requires_grad for one in run(X))


@pytest.mark.long
@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_recurrent_layers_have_the_formats_numbers(kind: Any) -> None:
    class Both(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = kind(8, 16, bidirectional=True)

        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
            y, state = self.layer(x)
            return y, state if isinstance(state, torch.Tensor) else state[1]

    torch.manual_seed(0)
    net, x = Both().to("loom"), torch.randn(5, 3, 8, device="loom")
    run = torch_loom.compile(net, (x,), chip="wormhole_b0", default_df_override="Bfp4_b")
    with torch.no_grad():
        emulated = numerics.emulate(net, numerics.DataFormat.Bfp4_b)(x)
        exact = net(x)
    for ours, theirs, float32 in zip(run(x), emulated, exact, strict=True):
        assert torch.equal(ours, theirs)
        assert not torch.equal(ours, float32)


def test_ops_of_several_results_have_the_formats_numbers() -> None:
    class Several(nn.Module):
        def forward(self, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
            return (*x.topk(2), *(x * 3).sort())

    torch.manual_seed(0)
    x = torch.randn(8, 32, device="loom")
    run = torch_loom.compile(Several(), (x,), chip="wormhole_b0", default_df_override="Bfp8_b")
    emulated = numerics.emulate(Several(), numerics.DataFormat.Bfp8_b)(x)
    assert all(torch.equal(a, b) for a, b in zip(run(x), emulated, strict=True))
