"""compare() and search(): what the reports say, and that their pages need nothing else."""

from __future__ import annotations

import itertools
import json
import math
import re
import xml.etree.ElementTree as ElementTree
from collections.abc import Iterator
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

from tests.numerics.inputs import random
from torch_loom import numerics
from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import (
    BlockScaled,
    Comparison,
    DataFormat,
    SearchResult,
    compare,
    emulate,
    pcc,
    quantize,
    search,
)
from torch_loom.numerics.reports.statistics import lost

B8, B4, B2 = DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small ops on several threads wait for one another where others use the processors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


class Parts(nn.Module):
    """Layers that run in another order than they were made in, one of them twice, one never."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.last = nn.Linear(32, 8)
        self.first = nn.Linear(32, 32)
        self.never = nn.Linear(4, 4)
        self.act = nn.GELU()

    def forward(self, x: Tensor) -> dict[str, Tensor]:
        return {"logits": self.last(self.act(self.first(self.act(x))))}


@pytest.fixture(scope="module")
def comparison() -> Comparison:
    return compare(Parts(), random(16, 32), [B8, B4, B2])


def test_layers_are_in_the_order_in_which_they_run(comparison: Comparison) -> None:
    assert [each.layer for each in comparison.of(B8)] == ["first", "act", "last"]
    assert [each.kind for each in comparison.of(B4)] == ["Linear", "GELU", "Linear"]
    assert len(comparison.layers) == 9


def test_worst_layers_come_first(comparison: Comparison) -> None:
    correlations = [each.errors.pcc for each in comparison.layers]
    assert correlations == sorted(correlations)
    assert comparison.layers[0].format is B2
    assert comparison.outputs[B8].pcc > comparison.outputs[B4].pcc > comparison.outputs[B2].pcc


def test_errors_are_those_of_the_layers_output() -> None:
    """Worked out by hand for one layer."""
    torch.manual_seed(0)
    layer, x = nn.Linear(32, 16), random(8, 32)
    found = compare(layer, x, [B4])
    with torch.no_grad():
        exact, got = layer(x).double(), emulate(layer, B4)(x).double()
    errors = found.outputs[B4]
    assert errors.largest == float((got - exact).abs().max())
    assert math.isclose(errors.relative, float((got - exact).norm() / exact.norm()), rel_tol=1e-12)
    table = torch.stack([got.flatten(), exact.flatten()])
    assert math.isclose(errors.pcc, float(torch.corrcoef(table)[0, 1]), rel_tol=1e-9)
    flushed = float(((quantize(exact.float(), B4) == 0) & (exact != 0)).double().mean())
    assert errors.flushed == flushed
    assert [each.errors for each in found.layers] == [errors]
    assert found.layers[0].layer == ""


def test_shares_of_lost_values() -> None:
    # A unit of 2^-2: 1.99 would need another bit, 0.1 is nearer to zero.
    assert lost(torch.tensor([1.99, 1.0, 0.1, 0.5]), B4) == (0.25, 0.25)
    assert lost(torch.tensor([1e5, 1.0, 1e-9, 0.0]), DataFormat.Float16) == (0.25, 0.25)
    assert lost(torch.tensor([2.0**18, 1.0]), DataFormat.Bfp8) == (0.5, 0.5)
    assert lost(torch.empty(0), B8) == (0.0, 0.0)


def test_correlation_of_what_is_constant_or_broken() -> None:
    assert pcc(torch.ones(4), torch.ones(4)) == 1.0
    assert pcc(torch.ones(4), torch.zeros(4)) == 0.0
    assert pcc(torch.tensor([1.0, float("nan")]), torch.ones(2)) == 0.0
    assert math.isclose(pcc(-torch.arange(4.0), torch.arange(4.0)), -1.0)


def test_inputs_of_every_kind_and_a_model_left_as_it_was() -> None:
    class Two(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.Linear(16, 16)

        def forward(self, x: Tensor, *, scale: Tensor) -> tuple[int, Tensor]:
            return 1, self.layer(x) * scale

    torch.manual_seed(0)
    model = Two().train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    inputs = {"x": random(4, 16), "scale": torch.tensor(2.0)}
    assert set(compare(model, inputs, [B8]).outputs) == {B8}
    assert model.training
    assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
    assert not any(part._forward_hooks or part._forward_pre_hooks for part in model.modules())
    assert compare(nn.Bilinear(4, 4, 2), (random(3, 4), random(3, 4)), [B8]).outputs[B8].pcc > 0.99


def test_overrides_of_a_comparison() -> None:
    model, x = Parts(), random(16, 32)
    plain, eased = compare(model, x, [B2]), compare(model, x, [B2], overrides={"act": None, "first": None})
    first = {each.layer: each.errors.relative for each in eased.layers}["first"]
    assert first == 0.0
    assert eased.outputs[B2].relative < plain.outputs[B2].relative


class Page(HTMLParser):
    """What a page refers to, and its texts; tags that do not match are an error."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.open: list[str] = []
        self.outside: list[str] = []
        self.feed(text)

    def handle_starttag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        if tag not in ("meta", "link", "img"):
            self.open.append(tag)
        self.outside += [value for name, value in attributes if name in ("src", "href") and value]

    def handle_startendtag(self, tag: str, attributes: list[tuple[str, str | None]]) -> None:
        self.handle_starttag(tag, attributes)
        self.open.pop()

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def check_page(text: str) -> ElementTree.Element:
    """Checks that a page stands alone; returns its plot."""
    page = Page(text)
    assert page.open == []
    assert page.outside == []
    assert "url(" not in text
    assert "<script" not in text
    match = re.search(r"<svg.*</svg>", text, re.DOTALL)
    assert match is not None
    return ElementTree.fromstring(match[0])


def test_reports_of_a_comparison(comparison: Comparison, tmp_path: Path) -> None:
    table = comparison.table(2).splitlines()
    assert len(table) == 1 + 2 + 3
    assert comparison.layers[0].layer in table[1]
    content = json.loads(comparison.save(tmp_path / "report.json").read_text(encoding="utf-8"))
    assert content["outputs"]["Bfp4_b"]["pcc"] == comparison.outputs[B4].pcc
    assert content["layers"][0] == comparison.layers[0].to_dict()
    assert comparison.save(tmp_path / "report.txt").read_text(encoding="utf-8") == str(comparison)
    plot = check_page(comparison.save(tmp_path / "report.html").read_text(encoding="utf-8"))
    assert len(plot.findall("circle")) == 9
    assert len(plot.findall("polyline")) == 3
    titles = [mark.findtext("title") or "" for mark in plot.findall("circle")]
    assert any(title.startswith("first (Linear), Bfp4_b: relative error") for title in titles)


def test_reports_name_the_model_and_its_layers_whole(tmp_path: Path) -> None:
    class Deep(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.inside = nn.ModuleDict({"a_name_of_more_than_forty_characters_in_all_": nn.Linear(16, 16)})

        def forward(self, x: Tensor) -> Tensor:
            return next(iter(self.inside.values()))(x)

    model, x = Deep(), random(4, 16)
    found: list[tuple[Comparison | SearchResult, str]] = [
        (compare(model, x, [B8]), "Formats of Deep compared"),
        (search(model, x), "Formats of Deep searched"),
    ]
    for report, title in found:
        assert report.model == "Deep"
        assert json.loads(report.to_json())["model"] == "Deep"
        assert f"<title>{title}</title>" in report.to_html()
        assert f"<h1>{title}</h1>" in report.to_html()
        lines = report.table().splitlines()
        assert lines[1].startswith("inside.a_name_of_more_than_forty_characters_in_all_ ")
        assert lines[0].index("format") == lines[1].index(report.layers[0].format.name)


def test_names_are_escaped() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.add_module("<b>&", nn.Linear(16, 16))

        def forward(self, x: Tensor) -> Tensor:
            return self._modules["<b>&"](x)  # type: ignore[misc]

    page = compare(Odd(), random(4, 16), [B8]).to_html()
    check_page(page)
    assert "<b>&<" not in page
    assert "&lt;b&gt;&amp;" in page


def test_a_search_keeps_its_budget_and_is_smaller(tmp_path: Path) -> None:
    model, x = Parts(), random(16, 32)
    result = search(model, x, "pcc", 0.99)
    assert result.score >= 0.99
    widest = result.points[0]
    assert result.bytes < widest.bytes
    assert result.bytes == sum(each.bytes for each in result.layers)
    assert set(result.assignment) == {"last", "first", "never"}
    # What it found is what emulate() runs.
    with torch.no_grad():
        got = emulate(model, result.widest, overrides=result.overrides)(x)["logits"]
        assert pcc(got, model(x)["logits"]) == result.score
    frontier = result.frontier()
    assert all(a.bytes < b.bytes and a.score < b.score for a, b in itertools.pairwise(frontier))
    content = json.loads(result.save(tmp_path / "search.json").read_text(encoding="utf-8"))
    assert {each["layer"]: each["format"] for each in content["layers"]} == {
        layer: fmt.name for layer, fmt in result.assignment.items()
    }
    plot = check_page(result.save(tmp_path / "search.html").read_text(encoding="utf-8"))
    assert len(plot.findall("circle")) == len(result.points) + len(frontier) + 1
    assert result.table() in str(result)


def test_budgets_at_the_ends() -> None:
    model, x = Parts(), random(16, 32)
    free = search(model, x, "pcc", -1.0)
    assert set(free.assignment.values()) == {B2}
    impossible = search(model, x, lambda output, exact: -1.0, 0.5)
    assert set(impossible.assignment.values()) == {B8}
    assert impossible.score == -1.0
    calls: list[tuple[Any, ...]] = []

    def metric(output: Tensor, exact: Tensor) -> float:
        calls.append((output.shape, exact.shape))
        return -float((output - exact).abs().max())

    search(model, x, metric, -0.1, formats=[B4, B8])
    assert set(calls) == {((16, 8), (16, 8))}


def test_weights_of_convolutions_are_packed_as_matrices() -> None:
    result = search(nn.Conv2d(8, 32, 3, bias=False), random(1, 8, 8, 8), "pcc", 2.0, formats=[B8, B4])
    assert result.bytes == 3 * 1088  # 32 x 72: three tiles


def test_bad_arguments_are_named() -> None:
    model, x = nn.Linear(4, 4), random(2, 4)
    with pytest.raises(FormatError, match="compare: no formats"):
        compare(model, x, [])
    with pytest.raises(FormatError, match=r"compare: formats.*Invalid.*allowed"):
        compare(model, x, [DataFormat.Invalid])
    with pytest.raises(OperandError, match="returned int, in which there is no floating-point tensor"):
        compare(_ReturnsInt(), x, [B8])
    with pytest.raises(FormatError, match="at least two formats"):
        search(model, x, formats=[B8])
    with pytest.raises(FormatError, match="share an exponent family"):
        search(model, x, formats=[B8, DataFormat.Bfp4])
    with pytest.raises(FormatError, match="metric is 'mse'; allowed: 'pcc'"):
        search(model, x, "mse")


class _ReturnsInt(nn.Module):
    def forward(self, x: Tensor) -> int:
        return 3


def test_a_second_input_in_the_place_of_formats_is_told() -> None:
    with pytest.raises(
        FormatError, match=r"a tensor of shape \[3, 4\] and of torch.float32.*\(x, y\)"
    ) as caught:
        compare(nn.Bilinear(4, 4, 2), torch.ones(3, 4), torch.ones(3, 4))  # type: ignore[arg-type]
    assert "tensor(" not in str(caught.value)


def layers() -> nn.Sequential:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(64, 64), nn.ReLU(), nn.Linear(64, 48), nn.ReLU(), nn.Linear(48, 8))


@pytest.mark.parametrize("mode", ["fast", "silicon"])
def test_a_search_takes_formats_with_scales(mode: str, tmp_path: Path) -> None:
    model, x = layers(), torch.randn(16, 64, generator=torch.Generator().manual_seed(1))
    formats = [BlockScaled.NVFP4, BlockScaled.MXFP8]
    result = numerics.search(model, x, budget=0.0, formats=formats, mode=mode)
    # K of the last layer is 48, which 32 does not divide: NVFP4's blocks alone fit.
    assert list(result.assignment.values()) == [BlockScaled.NVFP4] * 3
    assert result.points[0].bytes == (64 + 48) * 64 * 33 // 32 + 48 * 8 * 4 + (64 + 48 + 8) * 4
    assert result.bytes == (64 * 64 + 48 * 64 + 48 * 8) * 9 // 16 + 3 * 4 + (64 + 48 + 8) * 4
    kept = numerics.search(model, x, budget=0.995, formats=formats, mode=mode)
    assert kept.score >= 0.995
    assert kept.bytes > result.bytes
    with torch.no_grad():
        exact = model(x)
        with result.applied(model, exact=mode == "silicon"):
            applied = model(x)
        assert torch.equal(model(x), exact)
    assert numerics.pcc(applied, exact) == pytest.approx(result.score)
    whole = numerics.tensor_core(
        model, chip="b200", format=BlockScaled.NVFP4, partial=True, exact=mode == "silicon"
    )
    with torch.no_grad():
        assert torch.equal(whole(x), applied)
    assert "NVFP4" in result.save(tmp_path / "search.html").read_text()
    assert '"format": "NVFP4"' in result.save(tmp_path / "search.json").read_text()


def test_a_search_refuses_formats_of_two_kinds() -> None:
    x = torch.ones(1, 64)
    with pytest.raises(
        FormatError, match="Bfp8_b beside NVFP4; allowed: formats with scales of blocks alone"
    ):
        numerics.search(layers(), x, formats=[BlockScaled.NVFP4, DataFormat.Bfp8_b])
    with pytest.raises(FormatError, match="at least two formats"):
        numerics.search(layers(), x, formats=[BlockScaled.NVFP4])
    with pytest.raises(FormatError, match="mode is 'exact'; allowed"):
        numerics.search(layers(), x, mode="exact")
    found = numerics.search(layers(), x, budget=2.0)
    with pytest.raises(FormatError, match="Bfp8_b has no scales of blocks; allowed: formats of BlockScaled"):
        found.applied(layers())


def test_a_comparison_takes_dtypes_of_tensor_cores(tmp_path: Path) -> None:
    model, x = layers(), torch.randn(16, 64, generator=torch.Generator().manual_seed(1))
    dtypes = [torch.float16, torch.bfloat16, torch.float8_e4m3fn, torch.float8_e5m2]
    found = numerics.compare(model, x, dtypes, chip="h100")
    errors = {fmt.name: each.relative for fmt, each in found.outputs.items()}
    assert list(errors.values()) == sorted(errors.values())
    first = next(each for each in found.layers if each.layer == "0" and each.format.name == "float16")
    assert first.errors.relative < 1e-3
    page = found.save(tmp_path / "compare.html").read_text()
    assert "float8_e4m3fn" in page
    with pytest.raises(FormatError, match="not a DataFormat"):
        numerics.compare(model, x, [torch.float16])  # type: ignore[list-item]
    with pytest.raises(FormatError, match=r"no rule for torch\.float8_e4m3fn .* on a100; allowed"):
        numerics.compare(model, x, [torch.float8_e4m3fn], chip="a100")
    with pytest.raises(FormatError, match="format is 3; allowed: None, BlockScaled"):
        numerics.tensor_core(format=3)  # type: ignore[call-overload]


def test_dtypes_as_formats_are_the_chips_products() -> None:
    a, b = torch.randn(5, 64), torch.randn(64, 7)
    one, two = a.abs().max() / 448, b.abs().max() / 448
    left, right = (a / one).to(torch.float8_e4m3fn), (b / two).to(torch.float8_e4m3fn)
    with numerics.tensor_core(chip="h100"):
        columns = torch.nn.functional.pad(right.view(torch.uint8), (0, 9)).view(torch.float8_e4m3fn)
        wanted = torch._scaled_mm(
            left, columns.T.contiguous().T, torch.ones(()), torch.ones(()), out_dtype=torch.float32
        )[:, :7]
        halves = a.half() @ b.half()
    with numerics.tensor_core(chip="h100", format=torch.float8_e4m3fn):
        assert torch.equal(a @ b, wanted * (one * two))
    with numerics.tensor_core(chip="h100", format=torch.float16):
        assert torch.equal((a @ b).half(), halves)


def layers_in_blocks() -> list[tuple[nn.Module, Any, tuple[str, ...], tuple[str, ...]]]:
    """Models, inputs, which layers have the formats, and which have not."""
    x = random(2, 5, 32)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(32, 4, 64, batch_first=True), 1)
    inner = "layers.0."
    parts = tuple(f"{inner}{name}" for name in ("self_attn", "linear1", "linear2"))
    norms = (f"{inner}norm1", f"{inner}norm2")
    indices = torch.arange(10).view(2, 5)
    return [
        (encoder, x, parts, norms),
        (nn.TransformerEncoderLayer(32, 4, 64), x, ("self_attn", "linear1", "linear2"), ("norm1", "norm2")),
        (nn.LSTM(32, 32, 2), x, ("",), ()),
        (nn.GRU(32, 32), x, ("",), ()),
        (nn.RNNCell(32, 32), x[0], ("",), ()),
        (nn.ConvTranspose2d(32, 8, 2, groups=2), random(1, 32, 4, 4), ("",), ()),
        (nn.Bilinear(32, 32, 8), (x, x), (), ("",)),
        (nn.Linear(32, 32).double(), x.double(), (), ("",)),
        (nn.Linear(24, 8), x[..., :24], (), ("",)),
        (nn.EmbeddingBag(32, 32), indices, (), ("",)),
        (nn.Sequential(nn.Embedding(32, 32), nn.Linear(32, 8)), indices, ("1",), ("0",)),
    ]


@pytest.mark.parametrize("number", range(11))
def test_a_search_tells_layers_that_have_no_format(number: int) -> None:
    model, x, converted, unconverted = layers_in_blocks()[number]
    model.eval()
    result = numerics.search(model, x, budget=-1.0, formats=[BlockScaled.NVFP4, BlockScaled.MXFP8])
    assert tuple(result.assignment) == converted
    assert result.unconverted == unconverted
    whole = sum(each.nbytes for each in model.parameters())
    assert (result.bytes < whole) == bool(converted)
    assert ("not converted" in result.table()) == bool(unconverted)
    assert json.loads(result.to_json())["unconverted"] == list(unconverted)
    has_fast_path = torch.backends.mha.get_fastpath_enabled()
    inputs = x if isinstance(x, tuple) else (x,)
    with torch.no_grad(), result.applied(model, exact=False):
        changed = model(*inputs)
    exact = model(*inputs)
    first = [each[0] if isinstance(each, tuple) else each for each in (changed, exact)]
    assert torch.allclose(*first, atol=1e-5) != bool(converted)
    assert torch.backends.mha.get_fastpath_enabled() is has_fast_path


def test_a_result_is_applied_to_its_own_model_alone() -> None:
    x = random(2, 64)
    result = numerics.search(layers(), x, budget=-1.0, formats=[BlockScaled.NVFP4, BlockScaled.MXFP8])
    for other, told in [
        (
            nn.Linear(64, 8),
            r"Linear, has no such layer: '0' of the Sequential .* \[64, 64\], \[64\]; allowed",
        ),
        (nn.Sequential(nn.Linear(64, 32)), r"parameters of \[32, 64\], \[32\] there: '0'"),
    ]:
        with pytest.raises(OperandError, match=f"applied: the model, a .*{told}"):
            result.applied(other)
    with pytest.raises(OperandError, match="applied: model is a int"):
        result.applied(3)  # type: ignore[arg-type]
    with pytest.raises(FormatError, match="applied: exact is 1; allowed: True, False"):
        result.applied(layers(), exact=1)  # type: ignore[arg-type]


@pytest.mark.parametrize("formats", [[B8, B4], [BlockScaled.NVFP4, BlockScaled.MXFP8]])
def test_options_that_formats_do_not_need_are_looked_at(formats: list[Any]) -> None:
    model, x = nn.Linear(32, 8), random(2, 32)
    with pytest.raises(FormatError, match="search: fidelity is 'LoFi'; allowed: LoFi"):
        search(model, x, formats=formats, fidelity="LoFi")  # type: ignore[arg-type]
    for option, told in [
        ({"fidelity": "LoFi"}, "fidelity is 'LoFi'; allowed: LoFi"),
        ({"mode": []}, r"mode is \[\]; allowed: fast, silicon"),
        ({"chip": "h1000"}, "chip is 'h1000', whose matrix instructions have no rule; allowed: v100"),
        ({"chip": 3}, "chip is 3, whose"),
    ]:
        with pytest.raises(FormatError, match=f"compare: {told}"):
            compare(model, x, formats, **option)  # type: ignore[arg-type]
