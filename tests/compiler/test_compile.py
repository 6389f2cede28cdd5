"""torch_loom.compile: eager's bits, plans that hold, netlists, reports, images."""

from __future__ import annotations

import copy
import pickle
import random
from html.parser import HTMLParser
from typing import TYPE_CHECKING, Any

import pytest
import torch
import yaml
from torch import nn

import torch_loom
from torch_loom import compiler
from torch_loom.compiler.options import REFUSED, Options
from torch_loom.errors import (
    CompilerOptionError,
    ImageError,
    PlacementError,
    UnknownOpError,
)
from torch_loom.image.folded import Folded

if TYPE_CHECKING:
    from pathlib import Path


pytestmark = pytest.mark.usefixtures("exported_once", "plain_configuration")


class Block(nn.Module):
    def __init__(self, width: int = 64) -> None:
        super().__init__()
        self.qkv = nn.Linear(width, 3 * width)
        self.norm = nn.LayerNorm(width)
        self.up = nn.Linear(width, 2 * width)
        self.down = nn.Linear(2 * width, width)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        q, k, v = (t.unflatten(-1, (2, -1)).transpose(1, 2) for t in self.qkv(x).chunk(3, -1))
        mixed = nn.functional.scaled_dot_product_attention(q, k, v)
        x = self.norm(x + mixed.transpose(1, 2).flatten(2))
        return x + self.down(nn.functional.gelu(self.up(x)))


@pytest.fixture(scope="module")
def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(Block(), Block()).to("loom").eval()


@pytest.fixture(scope="module")
def x() -> torch.Tensor:
    return torch.randn(2, 40, 64, device="loom")


def made(net: nn.Module, x: torch.Tensor, **options: Any) -> torch_loom.Executable:
    return torch_loom.compile(net, (x,), chip="wormhole_b0", checks=True, **options)


def ops(executable: torch_loom.Executable) -> dict[str, dict[str, Any]]:
    return {op["name"]: op for epoch in executable.plan["epochs"] for op in epoch["ops"]}


@pytest.mark.long
def test_exact_runs_have_eagers_bits(net: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    run = made(net, x)
    with torch.no_grad():
        for step in range(3):
            assert torch.equal(run(x * step), net(x * step))
    with pytest.raises(
        ValueError, match=r"compiled for float32 \[2, 40, 64\], but got float32 \[1, 40, 64\]"
    ):
        run(x[:1])
    # On the host's model, too.
    again = made(nn.Sequential(Block()).eval(), x.cpu())
    assert again(x.cpu()).device.type == "loom"


@pytest.mark.long
def test_netlist_and_report(net: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    run = made(net, x)
    netlist = yaml.safe_load(run.netlist())
    assert list(netlist) == ["devices", "queues", "graphs", "programs", "fused_ops"]
    assert netlist["devices"]["grid_size"] == [9, 8]
    assert len(netlist["graphs"]) == len(run.plan["epochs"])
    assert any("gelu" in part for op in netlist["fused_ops"].values() for part in op["schedules"][0])
    assert run.samples_per_second > 0
    assert f"{run.num_ops} ops in {len(run.plan['epochs'])} epochs for wormhole_b0" in repr(run)
    assert 0 < run.latency_seconds < 1

    run.report(tmp_path / "plan.html")
    text = (tmp_path / "plan.html").read_text(encoding="utf-8")
    page = _Page()
    page.feed(text)
    assert page.open == []
    assert page.labels.count("Time line") == 1
    assert [label for label in page.labels if label.startswith("Epoch")] == [
        f"Epoch {epoch['index']}" for epoch in run.plan["epochs"]
    ]
    assert page.ops == sum(len(epoch["ops"]) for epoch in run.plan["epochs"])
    assert "http" not in text.replace("http-equiv", "")
    assert "<h1>Plan of Sequential for wormhole_b0</h1>" in text
    assert "<title>Plan of Sequential for wormhole_b0</title>" in text
    # Ops have their names where they fit, or numbers whose names stand below.
    assert "…" not in text
    for epoch in run.plan["epochs"]:
        for number, op in enumerate(epoch["ops"], 1):
            assert f">{op['name']}</text>" in text or f"<b>{number}</b> {op['name']}</span>" in text
    assert ">scaled_dot_product_attention</text>" not in text, "one core is wide enough for it?"


class _Page(HTMLParser):
    """What a page draws; ``open`` is empty at the end of a page whose tags are all closed."""

    def __init__(self) -> None:
        super().__init__()
        self.open: list[str] = []
        self.labels: list[str] = []
        self.ops = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        given = dict(attrs)
        if tag not in ("meta",):
            self.open.append(tag)
        if tag == "svg":
            self.labels.append(given.get("aria-label") or "")
        self.ops += given.get("class") == "op"

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        pass

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag


def test_damaged_and_foreign_images_are_refused(net: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    path = tmp_path / "net.loom"
    made(net, x).save(path)
    whole = path.read_bytes()
    bad = {
        "missing": None,
        "empty": b"",
        "truncated": whole[: len(whole) // 2],
        "text": b"not an image" * 100,
        "bit": whole[:-5] + bytes([whole[-5] ^ 1]) + whole[-4:],
        "version": whole.replace(b'"version":"2"', b'"version":"9"'),
    }
    for name, content in bad.items():
        other = tmp_path / name
        if content is not None:
            other.write_bytes(content)
        with pytest.raises(ImageError, match=name):  # the path stands in the message
            torch_loom.Executable.load(other)
    with pytest.raises(ImageError, match="planned for the chip wormhole_b0"):
        torch_loom.Executable.load(path, check_chip=True)


class Twice(nn.Module):
    """A parameter that is read directly, and by a constant."""

    def __init__(self) -> None:
        super().__init__()
        self.w = nn.Parameter(torch.rand(4, 4))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x @ self.w + x @ (self.w * 2)


def test_parameters_that_can_be_changed_are_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    x = torch.ones(2, 4)
    elsewhere = torch_loom.compile(Twice().eval(), (x,))
    assert elsewhere.parameters == {}  # w * 2 would stay as it is
    module: Any = Twice().to("loom").eval()
    run = torch_loom.compile(module, (x,))
    assert run.parameters["w"].data_ptr() == module.w.data_ptr()
    run.save(tmp_path / "twice.loom")
    with torch.inference_mode():
        loaded = torch_loom.Executable.load(tmp_path / "twice.loom")
    with torch.no_grad():
        for one in (run, loaded):
            one.parameters["w"].fill_(1)
            assert torch.equal(one(x).cpu(), torch.full((2, 4), 12.0))
    monkeypatch.setattr(Folded, "tensors", lambda self: None)  # the module is gone
    assert run.parameters == {}


@pytest.mark.parametrize("copied", [copy.deepcopy, pickle.dumps])
def test_copies_say_how_to_save(copied: Any, net: nn.Module, x: torch.Tensor) -> None:
    with pytest.raises(TypeError, match=r"save\(path\)"):
        copied(torch_loom.compile(net, (x,)))


def test_an_optimizer_is_one_of_pytorch(net: nn.Module, x: torch.Tensor) -> None:
    with pytest.raises(CompilerOptionError, match=r"optimizer is a int; it takes a torch\.optim\.Optimizer"):
        torch_loom.compile(net, (x,), optimizer=3)  # type: ignore[arg-type]


@pytest.mark.long
def test_formats_change_numbers_as_little_as_they_may(net: nn.Module, x: torch.Tensor) -> None:
    from torch_loom.numerics import pcc

    exact = made(net, x)(x)
    for options in ({"default_df_override": "Bfp8_b", "math_fidelity": "HiFi2"}, {"amp_level": 2}):
        run = made(net, x, **options)
        assert not torch.equal(run(x), exact)
        assert pcc(run(x).cpu(), exact.cpu()) > 0.99
    assert {op["format"] for op in ops(run).values()} >= {"Bfp8_b"}
    compiler.configure_mixed_precision(op_type="linear", output_df="Bfp4_b", math_fidelity="LoFi")
    run = made(net, x)
    linears = [op for op in ops(run).values() if op["type"].endswith("linear")]
    assert {op["fidelity"] for op in linears} == {"LoFi"}
    compiler.configure_mixed_precision(op_type="layer_norm", output_df="Float16")
    with pytest.raises(CompilerOptionError, match="exponent families"):
        made(net, x)


@pytest.mark.parametrize("fidelity", ["LoFi", "HiFi2", "HiFi3", "HiFi4"])
@pytest.mark.parametrize("name", ["Bfp8_b", "Float16_b"])
def test_numbers_are_those_of_each_op_by_itself(name: str, fidelity: str) -> None:
    from torch_loom.numerics import DataFormat, MathFidelity, conv2d, quantize

    def rounded(value: torch.Tensor) -> torch.Tensor:
        return quantize(value, DataFormat[name])

    torch.manual_seed(3)
    layers = [nn.Conv2d(3, 8, 3, padding=1), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(2), nn.Linear(9, 5)]
    net = nn.Sequential(*layers).eval()
    how = {"fidelity": MathFidelity[fidelity], "accumulate": DataFormat.Float16_b}
    x = torch.randn(2, 3, 6, 6) * 8
    weight, bias, matrix, row = (rounded(parameter.detach()) for parameter in net.parameters())
    y = rounded(conv2d(rounded(x), weight, bias, padding=1, **how))
    y = rounded(nn.functional.max_pool2d(rounded(y.relu()), 2))
    products = torch.ops.loom_numerics.linear(
        y.flatten(2), matrix, row, MathFidelity[fidelity].value, DataFormat.Float16_b.value
    )
    run = torch_loom.compile(
        net.to("loom"), (x.to("loom"),), default_df_override=name, math_fidelity=fidelity, cache=False
    )
    assert torch.equal(run(x.to("loom")).cpu(), rounded(products))


def test_views_are_rounded_anew() -> None:
    from torch_loom.numerics import DataFormat, quantize

    class Turned(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return (x + 1).transpose(-2, -1).relu()

    def rounded(value: torch.Tensor) -> torch.Tensor:
        return quantize(value, DataFormat.Bfp4_b)

    x = torch.randn(32, 32) * torch.logspace(-3, 3, 32)
    expected = rounded(rounded(rounded(x) + 1).t().relu())
    run = torch_loom.compile(Turned(), (x.to("loom"),), default_df_override="Bfp4_b", cache=False)
    assert torch.equal(run(x.to("loom")).cpu(), expected)
    assert not torch.equal(expected, rounded(rounded(x) + 1).t().relu())


@pytest.mark.parametrize("name", ["UInt16", "Int8"])
def test_integer_formats_lack_the_other_sign(name: str) -> None:
    from torch_loom.numerics import DataFormat, quantize

    class Negated(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return -x

    x = torch.tensor([-128.0, -3.0, 0.0, 3.0, 127.0]).repeat(32, 1)
    fmt = DataFormat[name]
    run = torch_loom.compile(Negated(), (x.to("loom"),), default_df_override=name, cache=False)
    assert torch.equal(run(x.to("loom")).cpu(), quantize(-quantize(x, fmt), fmt))


def test_a_ribbon_is_as_high_as_its_neighbours(net: nn.Module, x: torch.Tensor) -> None:
    for epoch in made(net, x, balancer_policy="Ribbon").plan["epochs"]:
        heights = {op["grid_size"][op["transposed"]] for op in epoch["ops"]}
        assert len(heights) == 1


def test_options_are_checked() -> None:
    for bad in (
        {"balancer_policy": "Nonsense"},
        {"device_config": "wh_n400"},
        {"harvested_rows": [[6]]},
        {"backend_opt_level": 5},
        {"amp_level": True},
        {"no_such_option": 1},
        {"default_df_override": "Float99"},
        *({name: "x"} for name in REFUSED),
    ):
        with pytest.raises(CompilerOptionError, match=next(iter(bad))):
            compiler.set_configuration_options(**bad)
    compiler.set_configuration_options(backend_opt_level=4, balancer_policy=None)
    assert compiler.configuration() == Options()
    with pytest.warns(DeprecationWarning, match="Ribbon"):
        compiler.set_configuration_options(balancer_policy="CNN")


@pytest.mark.long
def test_breaks_and_overrides(net: nn.Module, x: torch.Tensor) -> None:
    plain = made(net, x)
    first = len(plain.plan["epochs"])
    names = list(ops(plain))
    compiler.set_epoch_break([names[2], compiler.name_regex(names[4])])
    assert len(made(net, x).plan["epochs"]) == first + 2
    compiler.reset_configuration()
    compiler.override_op_size(names[1], (2, 1))
    compiler.override_op_placement(names[1], start=(3, 4))
    op = ops(made(net, x))[names[1]]
    assert (op["grid_size"], op["grid_loc"]) == ([2, 1], [3, 4])
    compiler.reset_configuration()
    compiler.set_chip_break(names[3])
    chips = {
        op["name"]: e["chip"] for e in made(net, x, device_config="wh_n300").plan["epochs"] for op in e["ops"]
    }
    assert chips[names[0]] != chips[names[3]]
    for bad in ("no_such_op", compiler.name_regex("no_.*"), [names[0], "no_such_op"]):
        compiler.reset_configuration()
        compiler.set_epoch_break(bad)
        with pytest.raises(UnknownOpError, match="no_"):
            made(net, x)


def test_parameters_that_one_chip_cannot_hold_are_spread(tmp_path: Path) -> None:
    layers = [nn.Linear(64, 64, bias=False) for _ in range(6)]
    stack, x = nn.Sequential(*layers).eval(), torch.ones(4, 64)
    board: dict[str, Any] = {"device_config": "wh_n300", "cache": False}
    together = torch_loom.compile(stack, (x,), **board)
    assert len(together.plan["epochs"]) == 1
    small = tmp_path / "small.yaml"
    small.write_text("channels: 1\nchannel_bytes: 60000\n")  # of 98,304
    spread = torch_loom.compile(stack, (x,), backend_runtime_params_path=str(small), **board)
    chips = [epoch["chip"] for epoch in spread.plan["epochs"] for _ in epoch["ops"]]
    assert sorted(chips.count(chip) for chip in set(chips)) == [3, 3]
    assert torch.equal(together(x), spread(x))
    with pytest.raises(PlacementError, match="bytes of DRAM"):
        torch_loom.compile(stack, (x,), backend_runtime_params_path=str(small), chip="wormhole_b0")


@pytest.mark.long
def test_what_does_not_fit_says_what_helps() -> None:
    wide = nn.Linear(4096, 8192, bias=False).eval()
    x = torch.ones(1024, 4096)
    with pytest.raises(PlacementError, match=r"linear.*bytes of SRAM.*enable_t_streaming=True"):
        torch_loom.compile(wide, (x,), chip="wormhole_b0", enable_t_streaming=False)
    (op,) = ops(torch_loom.compile(wide, (x,), chip="wormhole_b0")).values()
    assert op["t"] > 1
    compiler.override_op_size("linear", (20, 20))
    with pytest.raises(PlacementError, match="20 x 20"):
        torch_loom.compile(wide, (x,), chip="wormhole_b0")


@pytest.mark.long
def test_outputs_in_a_folder(net: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    import json

    sizes = {}
    for level in ("NONE", "LIGHT", "VERBOSE"):
        made(net, x, backend_output_dir=str(tmp_path / level), performance_trace=level)
        assert yaml.safe_load((tmp_path / level / "netlist.yaml").read_text())["graphs"]
        trace = tmp_path / level / "perf_trace.json"
        sizes[level] = len(json.loads(trace.read_text())["traceEvents"]) if trace.exists() else 0
    assert sizes["NONE"] == 0 < sizes["LIGHT"] < sizes["VERBOSE"]


@pytest.mark.slow
def test_descriptors(net: nn.Module, x: torch.Tensor, tmp_path: Path) -> None:
    device, cluster, params = (tmp_path / f"{name}.yaml" for name in ("device", "cluster", "params"))
    device.write_text("functional_workers: [1-1, 2-1, 1-2, 2-2]\nworker_l1_size: 1499136\n")
    assert made(net, x, backend_device_descriptor_path=str(device)).plan["grid"] == [2, 2]
    cluster.write_text("chips: {0: [0, 0], 1: [1, 0], 2: [2, 0]}\n")
    assert made(net, x, backend_cluster_descriptor_path=str(cluster)).plan["num_chips"] == 3
    made(net, x, backend_runtime_params_path=str(params), store_backend_db_to_yaml=True)
    stored = yaml.safe_load(params.read_text())
    params.write_text(yaml.safe_dump({**stored, "clock_ghz": stored["clock_ghz"] * 2}))
    assert made(net, x, backend_runtime_params_path=str(params)).plan["clock_ghz"] == stored["clock_ghz"] * 2
    params.write_text("no: [")
    with pytest.raises(CompilerOptionError, match="backend_runtime_params_path"):
        made(net, x, backend_runtime_params_path=str(params))


def random_plan(seed: int) -> None:
    from tests.compiler.random_plans import check_random_plan

    check_random_plan(random.Random(seed))


@pytest.mark.parametrize("seed", range(20))
def test_random_graphs_have_right_plans(seed: int) -> None:
    random_plan(seed)


@pytest.mark.slow
def test_many_random_graphs_have_right_plans() -> None:
    for seed in range(500):
        random_plan(seed)
