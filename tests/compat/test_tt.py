"""tt-xla's backend: each option changes what docs/tt.md says, weights have formats, the rest raises."""

from __future__ import annotations

import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_loom.compat.tt as tt
from tools import tt_options
from torch_loom.compat.tt.options import DECLINED_NAMES, DECLINED_OPTIONS, EFFECTS, parsed
from torch_loom.compiler.backend import compiled_graphs, reset
from torch_loom.errors import CompilerOptionError
from torch_loom.numerics import DataFormat, quantize

ROOT = Path(__file__).parents[2]


@pytest.fixture(autouse=True)
def _fresh() -> Iterator[None]:
    torch.manual_seed(0)
    yield
    tt.set_custom_compile_options({})
    torch._dynamo.reset()
    reset()


def _model() -> nn.Module:
    layers = nn.Sequential(nn.Linear(64, 32), nn.GELU(), nn.Linear(32, 8))
    return layers.to("loom", torch.bfloat16).eval()


def _run(model: nn.Module, **options: Any) -> torch.Tensor:
    torch.manual_seed(1)
    x = torch.randn(16, 64, device="loom", dtype=torch.bfloat16)
    torch._dynamo.reset()
    with torch.no_grad():
        compiled: Any = torch.compile(model, backend="tt", options=options)
        made: torch.Tensor = compiled(x)
        assert torch.equal(compiled(x), made)
    return made


@pytest.mark.long
def test_values_are_those_of_the_model() -> None:
    model = _model()
    assert sys.modules["tt_torch"] is sys.modules["torch_plugin_tt"] is tt
    x = torch.randn(16, 64, device="loom", dtype=torch.bfloat16)
    made = torch.compile(model, backend="tt")(x)
    assert torch.allclose(made, model(x), atol=2e-2)
    made.sum().backward()
    trained = [parameter.grad.clone() for parameter in model.parameters() if parameter.grad is not None]
    model.zero_grad()
    model(x).sum().backward()
    for parameter, gradient in zip(model.parameters(), trained, strict=True):
        assert parameter.grad is not None
        assert torch.allclose(gradient, parameter.grad, atol=0.5, rtol=0.05)


@pytest.mark.long
@pytest.mark.parametrize(
    "options",
    [
        {"math_fidelity": "lofi"},
        {"experimental_weight_dtype": "bfp_bf8"},
        {"experimental_weight_dtype": "bfp_bf4"},
    ],
)
def test_an_option_decides_the_numbers(options: dict[str, Any]) -> None:
    model = _model()
    plain, made = _run(model), _run(model, **options)
    assert not torch.equal(made, plain)
    assert torch.allclose(made, plain, atol=0.3)


@pytest.mark.long
def test_sums_are_kept_in_16_bits_without_fp32_dest_acc() -> None:
    model = _model().float()
    x = torch.rand(16, 64, device="loom")

    def run(**options: Any) -> torch.Tensor:
        torch._dynamo.reset()
        with torch.no_grad():
            made: torch.Tensor = torch.compile(model, backend="tt", options=options)(x)
        return made

    assert not torch.equal(run(fp32_dest_acc_en=False), run(fp32_dest_acc_en="true"))


@pytest.mark.long
def test_a_trace_is_replayed_and_levels_fuse() -> None:
    model = _model()
    expected = _run(model)
    assert compiled_graphs()[-1].replayer is None
    assert torch.equal(_run(model, enable_trace="true", optimization_level=2), expected)
    assert compiled_graphs()[-1].replayer is not None
    notes = {record.name for record in compiled_graphs()[-1].records}
    assert {"fuse", "formats", "quantise"} <= notes


@pytest.mark.long
def test_a_dry_run_gives_zeros_and_files(tmp_path: Path) -> None:
    made = _run(_model(), dry_run=True, export_path=str(tmp_path), export_model_name="mlp")
    assert made.shape == (16, 8)
    assert not made.any()
    [graph], [code] = tmp_path.glob("mlp_*.json"), tmp_path.glob("mlp_*.py")
    assert json.loads(graph.read_text(encoding="utf-8"))["inputs"]
    assert "def forward(" in code.read_text(encoding="utf-8")


@pytest.mark.long
def test_a_dry_run_has_gradients_of_zeros() -> None:
    model, x = _model(), torch.rand(4, 64, device="loom", dtype=torch.bfloat16)
    compiled: Any = torch.compile(model, backend="tt", options={"dry_run": True})
    made = compiled(x)
    assert made.requires_grad
    made.sum().backward()
    for parameter in model.parameters():
        assert parameter.grad is not None
        assert parameter.grad.shape == parameter.shape
        assert not parameter.grad.any()
    assert not compiled(x).detach().any()
    assert not compiled(x.requires_grad_()).is_leaf
    with torch.no_grad():
        assert not compiled(x).requires_grad


def test_results_of_a_dry_run_without_gradients_have_none() -> None:
    def both(x: torch.Tensor, w: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return x + 1, x @ w, x.argmax()

    x, w = torch.rand(4, 4, device="loom"), torch.rand(4, 4, device="loom", requires_grad=True)
    compiled: Any = torch.compile(both, backend="tt", options={"dry_run": True})
    assert [one.requires_grad for one in compiled(x, w)] == [one.requires_grad for one in both(x, w)]


@pytest.mark.parametrize("mode", [None, "default", "max-autotune"])
def test_modes_are_pytorchs(mode: str | None) -> None:
    x = torch.rand(4, device="loom")
    compiled: Any = torch.compile(torch.relu, backend="tt", mode=mode)
    assert torch.equal(compiled(x), x)


def test_another_mode_raises() -> None:
    compiled: Any = torch.compile(torch.relu, backend="tt", mode="max-autotun")
    with pytest.raises(Exception, match=r"mode='max-autotun': .*reduce-overhead.*mean 'max-autotune'"):
        compiled(torch.rand(4, device="loom"))


@pytest.mark.long
@pytest.mark.parametrize("product", ["mm", "baddbmm"])
def test_the_second_operand_of_a_product_is_its_weight(product: str) -> None:
    """As in tt-mlir: a parameter on the left stays as it is, and a bias is no operand."""

    class Product(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.w = nn.Parameter(torch.randn(2, 32, 32))

        def forward(self, x: torch.Tensor, on_left: bool) -> torch.Tensor:
            left, right = (self.w, x) if on_left else (x, self.w)
            return left @ right if product == "mm" else torch.baddbmm(x, left, right)

    model, x = Product().to("loom"), torch.randn(2, 32, 32, device="loom")

    def run(on_left: bool, **options: Any) -> torch.Tensor:
        torch._dynamo.reset()
        with torch.no_grad():
            made: torch.Tensor = torch.compile(model, backend="tt", options=options)(x, on_left)
        return made

    for on_left in (False, True):
        same = torch.equal(run(on_left, experimental_weight_dtype="bfp_bf4"), run(on_left))
        assert same is on_left


@pytest.mark.long
def test_codegen_writes_the_graph_and_runs_nothing(tmp_path: Path) -> None:
    model = _model()
    x = torch.randn(4, 64, device="loom", dtype=torch.bfloat16)
    tt.codegen_py(model, x, compiler_options={"optimization_level": 1}, export_path=tmp_path / "model")
    assert list((tmp_path / "model" / "graph_0").glob("*.py"))


def test_custom_options_hold_until_they_are_replaced() -> None:
    tt.set_custom_compile_options({"math_fidelity": "lofi"})
    assert parsed(None).math_fidelity == "lofi"
    assert parsed({"math_fidelity": "hifi2"}).math_fidelity == "hifi2"
    with pytest.raises(CompilerOptionError):
        tt.set_custom_compile_options({"math_fidelity": "highest"})
    with pytest.raises(CompilerOptionError, match=r"it takes a dictionary; \{\} sets no option"):
        tt.set_custom_compile_options(None)  # type: ignore[arg-type]
    assert tt.get_custom_compile_options() == {"math_fidelity": "lofi"}
    assert parsed({"tt_legacy_compile": True}).tt_legacy_compile


def test_what_is_not_there_raises() -> None:
    with pytest.raises(CompilerOptionError, match="math_fidelty is no option of the backend tt: do you mean"):
        parsed({"math_fidelty": "lofi"})
    for name in DECLINED_OPTIONS:
        with pytest.raises(CompilerOptionError, match=f"{name}=True is declined"):
            parsed({name: True})
    for name in DECLINED_NAMES:
        with pytest.raises(AttributeError, match=f"tt_torch.{name} is declined"):
            getattr(tt, name)
    wrong = {
        "optimization_level": 3,
        "enable_trace": "maybe",
        "experimental_weight_dtype": "bf8",
        "export_path": 3,
        "export_model_name": "../x",
    }
    for name, bad in wrong.items():
        with pytest.raises(CompilerOptionError, match=f"{name}={re.escape(repr(bad))}: it takes"):
            parsed({name: bad})
    for no_options in ([1], {1: 2}):
        with pytest.raises(CompilerOptionError, match="a dictionary of options by name"):
            parsed(no_options)  # type: ignore[arg-type]


def test_the_page_is_up_to_date() -> None:
    page = (ROOT / tt_options.FILE).read_text(encoding="utf-8")
    assert page == tt_options.page(), "run `make docs`"
    assert all(f"`{name}`" in page for name in (*EFFECTS, *DECLINED_OPTIONS, *DECLINED_NAMES))


@pytest.mark.long
def test_weights_have_formats_by_name(tmp_path: Path) -> None:
    model = _model()
    first, last = model[0].weight.detach().clone(), model[2].weight.detach().clone()  # type: ignore[index]
    rules = {"default": "bfp_bf8", "2.weight": "bfp_bf4"}
    path = tmp_path / "rules.json"
    path.write_text(json.dumps(rules), encoding="utf-8")
    done = tt.apply_weight_dtype_overrides(model, path)
    assert done == [("0.weight", "bfp_bf8"), ("2.weight", "bfp_bf4")]
    assert torch.equal(model[0].weight, quantize(first, DataFormat.Bfp8_b))  # type: ignore[index]
    assert torch.equal(model[2].weight, quantize(last, DataFormat.Bfp4_b))  # type: ignore[index]
    assert torch.allclose(_run(model), _run(model), atol=0)
    assert tt.remove_weight_dtype_overrides(model) == 2
    assert torch.equal(model[2].weight, last)  # type: ignore[index]


def test_weights_of_products_alone_have_formats() -> None:
    """A weight that several modules share has its format in each that is a product."""

    class Model(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.embed, self.norm = nn.Embedding(16, 16), nn.LayerNorm((2, 16))
            self.up = nn.ConvTranspose2d(1, 1, 3)
            self.head, self.again = nn.Linear(16, 16, bias=False), nn.Linear(16, 16, bias=False)
            self.head.weight = self.again.weight = self.embed.weight
            self.same = self.head

    given = {"all": "bfp_bf8", "by name": {"embed.weight": "bfp_bf8"}}
    for config in given.values():
        model = Model()
        before = model.embed.weight.detach().clone()
        done = tt.apply_weight_dtype_overrides(model, config)  # type: ignore[arg-type]
        assert done == [("head.weight", "bfp_bf8"), ("again.weight", "bfp_bf8")]
        for head in (model.head, model.again):
            assert torch.equal(head.weight, quantize(before, DataFormat.Bfp8_b))
        assert torch.equal(model.embed.weight, before)
        with pytest.warns(
            UserWarning, match=r"'\*norm\*' is no weight of a matrix product: nothing has bf16"
        ):
            assert tt.apply_weight_dtype_overrides(model, {"*norm*": "bf16"}) == []
        assert tt.remove_weight_dtype_overrides(model) == 2
        assert model.head.weight is model.embed.weight is model.again.weight


def test_values_of_other_types_are_named(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    for config, said in (
        ({1: "bf16"}, "1 names no weight"),
        ({"weight": ["bf16"]}, r"'weight' has \['bf16'\]"),
        (5, "5 is no dict"),
    ):
        with pytest.raises(CompilerOptionError, match=said):
            tt.apply_weight_dtype_overrides(model, config)  # type: ignore[arg-type]
    for call in (
        lambda: tt.apply_weight_dtype_overrides("model", "bf16"),  # type: ignore[arg-type]
        lambda: tt.remove_weight_dtype_overrides(None),  # type: ignore[arg-type]
        lambda: tt.dump_weight_names(3, "m"),  # type: ignore[arg-type]
        lambda: tt.dump_weight_names(model, 3),  # type: ignore[arg-type]
        lambda: tt.dump_weight_names(model, "m", 3),  # type: ignore[arg-type]
        lambda: tt.dump_weight_names(model, "m", default_dtype="fp8"),
    ):
        with pytest.raises(CompilerOptionError, match=r"it is|they are"):
            call()


def test_rules_for_weights_are_checked(tmp_path: Path) -> None:
    model = nn.Sequential(nn.Conv2d(1, 2, 3), nn.Linear(4, 4))
    assert tt.apply_weight_dtype_overrides(model, "bfp_bf8") == [("1.weight", "bfp_bf8")]
    with pytest.warns(UserWarning, match="no parameter is called 'layers"):
        tt.apply_weight_dtype_overrides(model, {"layers.*": "bf16"})
    with pytest.raises(CompilerOptionError, match=r"'1\.weight' has 'fp8'; it is one of bfp_bf8"):
        tt.apply_weight_dtype_overrides(model, {"1.weight": "fp8"})
    with pytest.raises(CompilerOptionError, match="is no dict, no JSON file"):
        tt.apply_weight_dtype_overrides(model, str(tmp_path / "none.json"))
    names = tt.dump_weight_names(_model(), "owner/mlp", str(tmp_path))
    assert names == {"0.weight": "bfp_bf8", "2.weight": "bfp_bf8"}
    assert json.loads((tmp_path / "mlp.json").read_text(encoding="utf-8")) == names


@pytest.mark.long
@pytest.mark.parametrize("norm_first", [False, True])
@pytest.mark.parametrize("mask", ["none", "source", "padding", "both"])
def test_layers_that_are_one_op_have_formats_too(norm_first: bool, mask: str) -> None:
    layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, norm_first=norm_first, activation="gelu")
    layer = layer.to("loom").eval()
    x = torch.rand(2, 6, 32, device="loom")
    masks: dict[str, Any] = {}
    if mask in ("source", "both"):
        masks["src_mask"] = torch.ones(6, 6, dtype=torch.bool, device="loom").triu(1)
    if mask in ("padding", "both"):
        masks["src_key_padding_mask"] = torch.arange(6, device="loom").expand(2, 6) > 3
    made = {}
    for has_gradients in (False, True):
        torch._dynamo.reset()
        with torch.set_grad_enabled(has_gradients):
            compiled: Any = torch.compile(layer, backend="tt", options={"math_fidelity": "lofi"})
            made[has_gradients] = compiled(x, **masks).detach()
    reference = layer(x, **masks).detach()
    assert torch.allclose(made[False], made[True], atol=2e-2)
    assert 1e-3 < float((made[False] - reference).abs().max()) < 0.5
