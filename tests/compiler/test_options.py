"""Each option of set_configuration_options changes something: a test for each, of its name."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

import torch_loom
from torch_loom import compiler
from torch_loom.compiler import overrides
from torch_loom.compiler.options import PYBUDA_OPTIONS, REFUSED
from torch_loom.errors import CompilerOptionError, PlacementError, UnknownOpError

pytestmark = pytest.mark.usefixtures("exported_once", "plain_configuration")

Effect = Callable[[Path], None]
EFFECTS: dict[str, Effect] = {}


def effect(test: Effect) -> Effect:
    EFFECTS[test.__name__] = test
    return test


class Net(nn.Module):
    """Several epochs' worth of ops: two readers of the input, a softmax, parameters that are computed."""

    def __init__(self) -> None:
        super().__init__()
        self.first, self.second = nn.Linear(64, 256), nn.Linear(64, 256, bias=False)
        self.norm = nn.LayerNorm(256)
        self.rest = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        both = torch.relu(self.first(x)) + nn.functional.linear(x, self.second.weight * 2)
        return self.rest(self.norm(both)).softmax(-1)


class Strided(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv = nn.Conv2d(3, 8, 3, stride=2)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.conv(x)


torch.manual_seed(0)
NET, STRIDED, WIDE = Net().eval(), Strided().eval(), nn.Linear(4096, 8192, bias=False).eval()
X, PICTURES, MANY = torch.randn(96, 64), torch.randn(2, 3, 33, 33), torch.zeros(1024, 4096)


def made(net: nn.Module = NET, x: torch.Tensor = X, **options: Any) -> torch_loom.Executable:
    return torch_loom.compile(net, (x,), chip=options.pop("chip", "wormhole_b0"), checks=True, **options)


def ops(run: torch_loom.Executable) -> dict[str, dict[str, Any]]:
    return {op["name"]: op for epoch in run.plan["epochs"] for op in epoch["ops"]}


def queues(run: torch_loom.Executable, kind: str) -> list[dict[str, Any]]:
    return [queue for queue in run.plan["queues"] if queue["kind"] == kind]


def numbers(run: torch_loom.Executable, x: torch.Tensor = X) -> torch.Tensor:
    return run(x).cpu()


@effect
def enable_recompute(tmp_path: Path) -> None:
    def saved(on: bool) -> int:
        torch.compiler.reset()
        net = nn.Linear(8, 8).to("loom")
        options = {"enable_recompute": on}
        run = torch.compile(lambda x: net(x).sin().cos().exp(), backend="loom", options=options)
        run(torch.ones(4, 8, device="loom")).sum().backward()
        graphs = [graph for graph in compiler.compiled_graphs() if graph.role == "backward"]
        return len(list(graphs[-1].graph.graph.find_nodes(op="placeholder")))

    assert saved(True) < saved(False)
    torch.compiler.reset()


@effect
def balancer_policy(tmp_path: Path) -> None:
    smallest = ops(made(balancer_policy="MinimizeGrid"))
    chosen = ops(made())
    assert {tuple(op["grid_size"]) for op in smallest.values()} == {(1, 1)}
    assert sum(op["cycles"] for op in chosen.values()) < sum(op["cycles"] for op in smallest.values())


@effect
def place_on_one_row(tmp_path: Path) -> None:
    assert any(op["grid_size"][0] > 1 for op in ops(made()).values())
    run = made(place_on_one_row=True, enable_auto_transposing_placement=False)
    assert {op["grid_size"][0] for op in ops(run).values()} == {1}


@effect
def enable_t_streaming(tmp_path: Path) -> None:
    (op,) = ops(made(WIDE, MANY)).values()
    assert op["t"] > 1
    with pytest.raises(PlacementError, match="enable_t_streaming=True"):
        made(WIDE, MANY, enable_t_streaming=False)


@effect
def manual_t_streaming(tmp_path: Path) -> None:
    with pytest.raises(PlacementError, match="override_t_stream_dir"):
        made(WIDE, MANY, manual_t_streaming=True)
    compiler.override_t_stream_dir("linear", "r")
    (op,) = ops(made(WIDE, MANY, manual_t_streaming=True)).values()
    assert op["t"] > 1


@effect
def enable_consteval(tmp_path: Path) -> None:
    assert made(enable_consteval=False).num_ops == made().num_ops + 1


@effect
def default_df_override(tmp_path: Path) -> None:
    run = made(default_df_override="Bfp8_b")
    assert {op["format"] for op in ops(run).values()} == {"Bfp8_b"}
    assert not torch.equal(numbers(run), numbers(made()))


@effect
def accumulate_df(tmp_path: Path) -> None:
    formats = {"default_df_override": "Bfp8_b"}
    assert {op["accumulate"] for op in ops(made(accumulate_df="Float32", **formats)).values()} == {"Float32"}
    assert not torch.equal(
        numbers(made(accumulate_df="Float32", **formats)), numbers(made(accumulate_df="Float16_b", **formats))
    )


@effect
def math_fidelity(tmp_path: Path) -> None:
    fast, slow = (ops(made(math_fidelity=name))["linear"] for name in ("LoFi", "HiFi4"))
    assert (fast["fidelity"], slow["fidelity"]) == ("LoFi", "HiFi4")
    formats = {"default_df_override": "Bfp8_b"}
    assert not torch.equal(
        numbers(made(math_fidelity="LoFi", **formats)), numbers(made(math_fidelity="HiFi4", **formats))
    )


@effect
def performance_trace(tmp_path: Path) -> None:
    sizes = {}
    for level in ("NONE", "LIGHT", "VERBOSE"):
        made(backend_output_dir=tmp_path / level, performance_trace=level)
        trace = tmp_path / level / "perf_trace.json"
        sizes[level] = len(json.loads(trace.read_text())["traceEvents"]) if trace.exists() else 0
    assert sizes["NONE"] == 0 < sizes["LIGHT"] < sizes["VERBOSE"]


@effect
def backend_opt_level(tmp_path: Path) -> None:
    levels = [made(backend_opt_level=level) for level in range(4)]
    assert [run.replays for run in levels] == [False, True, True, True]
    parts = [len(op["parts"]) for op in ops(levels[3]).values()]
    assert max(parts) > max(len(op["parts"]) for op in ops(levels[2]).values())
    names = list(ops(levels[1]))
    compiler.set_epoch_break(names[2])
    entries = [sum(q["entries"] for q in queues(made(backend_opt_level=n), "epoch")) for n in (1, 2)]
    assert entries[1] < entries[0]


@effect
def backend_output_dir(tmp_path: Path) -> None:
    run = made(backend_output_dir=tmp_path / "out")
    assert (tmp_path / "out" / "netlist.yaml").read_text() == run.netlist()


@effect
def backend_device_descriptor_path(tmp_path: Path) -> None:
    path = tmp_path / "device.yaml"
    path.write_text("functional_workers: [1-1, 2-1, 1-2, 2-2]\n")
    assert made(backend_device_descriptor_path=path).plan["grid"] == [2, 2]


@effect
def backend_cluster_descriptor_path(tmp_path: Path) -> None:
    path = tmp_path / "cluster.yaml"
    path.write_text("chips: {0: [0, 0], 1: [1, 0], 2: [2, 0]}\n")
    assert made(backend_cluster_descriptor_path=path).plan["num_chips"] == 3


@effect
def backend_runtime_params_path(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    path.write_text("clock_ghz: 0.25\n")
    slow = made(backend_runtime_params_path=path)
    assert slow.plan["clock_ghz"] == 0.25
    assert slow.latency_seconds > made().latency_seconds


@effect
def store_backend_db_to_yaml(tmp_path: Path) -> None:
    path = tmp_path / "params.yaml"
    made(backend_runtime_params_path=path)
    assert not path.exists()
    run = made(backend_runtime_params_path=path, store_backend_db_to_yaml=True)
    assert yaml.safe_load(path.read_text())["clock_ghz"] == run.plan["clock_ghz"]


@effect
def enable_auto_fusing(tmp_path: Path) -> None:
    assert "relu" in ops(made(enable_auto_fusing=False))
    assert "relu" not in ops(made())
    assert "relu" in ops(made())["linear"]["parts"]


@effect
def enable_conv_prestride(tmp_path: Path) -> None:
    runs = {on: made(STRIDED, PICTURES, enable_conv_prestride=on) for on in (True, False)}
    layouts = {on: queues(run, "input")[0]["layout"] for on, run in runs.items()}
    assert layouts == {True: "prestrided", False: "tiles"}
    assert runs[True].latency_seconds < runs[False].latency_seconds
    assert "layout: prestrided" in runs[True].netlist()


@effect
def enable_stable_softmax(tmp_path: Path) -> None:
    large = torch.tensor([[1000.0, 999.0]])
    assert numbers(made(nn.Softmax(-1), large), large).isfinite().all()
    plain = made(nn.Softmax(-1), large, enable_stable_softmax=False)
    assert numbers(plain, large).isnan().any()
    assert [op["type"] for op in ops(plain).values()] == ["aten::exp", "aten::sum.dim_IntList"]
    torch.testing.assert_close(numbers(plain, large / 1000), (large / 1000).softmax(-1))


@effect
def amp_level(tmp_path: Path) -> None:
    formats = {op["format"] for op in ops(made(amp_level=2)).values()}
    assert formats == {"Bfp8_b", "Float16_b"} | {"Float32"} & formats
    assert not torch.equal(numbers(made(amp_level=2)), numbers(made()))
    assert ops(made(amp_level=1)) == ops(made())  # it is for optimizers
    # Of the family of the default, since no op takes both.
    short = {op["format"] for op in ops(made(amp_level=2, default_df_override="Float16")).values()}
    assert short == {"Bfp8", "Float16"}


@effect
def harvested_rows(tmp_path: Path) -> None:
    rows = made().plan["grid"][0]
    assert made(harvested_rows=[[1]]).plan["grid"][0] == 10 - 1
    assert made(harvested_rows=[[1, 7, 11]]).plan["grid"][0] == 10 - 3
    assert rows in (9, 10)


@effect
def input_queues_on_host(tmp_path: Path) -> None:
    assert {queue["place"] for queue in queues(made(), "input")} == {"host"}
    assert {queue["place"] for queue in queues(made(input_queues_on_host=False), "input")} == {"dram"}


@effect
def output_queues_on_host(tmp_path: Path) -> None:
    assert {queue["place"] for queue in queues(made(), "output")} == {"host"}
    assert {queue["place"] for queue in queues(made(output_queues_on_host=False), "output")} == {"dram"}


@effect
def enable_auto_transposing_placement(tmp_path: Path) -> None:
    # What is left is a column of cores: three in a row fit only turned.
    device = tmp_path / "device.yaml"
    device.write_text("grid: {rows: 8, columns: 5}\n")
    where = {"backend_device_descriptor_path": device}
    names = list(ops(made(**where)))
    compiler.override_op_size(names[0], (4, 4))
    compiler.override_op_placement(names[0], start=(0, 0))
    compiler.override_op_size(names[1], (1, 5))
    compiler.override_op_placement(names[1], start=(7, 0))
    compiler.override_op_size(names[2], (3, 4))
    compiler.override_op_placement(names[2], start=(4, 0))
    compiler.override_op_size(names[3], (1, 3))
    for name in names[4:]:
        compiler.override_op_size(name, (1, 1))
    turned = made(**where)
    assert len(turned.plan["epochs"]) <= len(
        made(enable_auto_transposing_placement=False, **where).plan["epochs"]
    )
    upright = {
        op["transposed"] for op in ops(made(enable_auto_transposing_placement=False, **where)).values()
    }
    assert upright == {False}
    assert any(op["transposed"] for op in ops(turned).values())


@effect
def use_interactive_placer(tmp_path: Path) -> None:
    x = torch.zeros(8192, 64)
    tried, once = (made(x=x, use_interactive_placer=on, chip="blackhole") for on in (True, False))
    assert [op["grid_size"] for op in ops(tried).values()] != [op["grid_size"] for op in ops(once).values()]
    assert tried.plan["totals"]["interval_seconds"] < once.plan["totals"]["interval_seconds"]


@effect
def op_intermediates_to_save(tmp_path: Path) -> None:
    run = made(op_intermediates_to_save=["linear", "relu"])
    linear = nn.functional.linear(X.to("loom"), NET.first.weight.to("loom"), NET.first.bias.to("loom"))
    assert torch.equal(numbers(run), numbers(made()))
    assert torch.equal(run.intermediates["linear"], linear)
    assert torch.equal(run.intermediates["relu"], linear.relu())
    assert {"saved_linear", "saved_relu"} <= {queue["name"] for queue in queues(run, "output")}
    with pytest.raises(UnknownOpError, match=r"op_intermediates_to_save.*no_such_op"):
        made(op_intermediates_to_save=["no_such_op"])


@effect
def enable_device_tilize(tmp_path: Path) -> None:
    run = made(enable_device_tilize=True)
    assert ops(run)["tilize_x"]["type"] == "loom::tilize"
    (queue,) = queues(run, "input")
    assert (queue["layout"], queue["consumers"]) == ("row_major", ["tilize_x"]) or queue["consumers"] == (
        "tilize_x",
    )
    assert {queue["layout"] for queue in queues(made(), "input")} == {"tiles"}
    assert torch.equal(numbers(run), numbers(made()))


@effect
def dram_placement_algorithm(tmp_path: Path) -> None:
    channels = {
        how: [queue["channel"] for queue in run.plan["queues"] if queue["place"] == "dram"]
        for how in ("ROUND_ROBIN", "ROUND_ROBIN_FLIP_FLOP", "GREATEST_CAPACITY", "CLOSEST")
        for run in [
            made(dram_placement_algorithm=how, input_queues_on_host=False, output_queues_on_host=False)
        ]
    }
    assert len({tuple(channel) for channel in channels.values()}) == 4


@effect
def chip_placement_policy(tmp_path: Path) -> None:
    names = list(ops(made()))
    compiler.set_chip_break(names[1:])
    orders = {
        how: [e["chip"] for e in made(device_config="galaxy", chip_placement_policy=how).plan["epochs"]]
        for how in ("MMIO_LAST", "SNAKE")
    }
    assert orders["MMIO_LAST"][0] == 1
    assert orders["SNAKE"][:4] == [0, 1, 2, 3][: len(orders["SNAKE"])]


@effect
def enable_forked_dram_inputs(tmp_path: Path) -> None:
    shared, apart = (queues(made(enable_forked_dram_inputs=on), "input") for on in (True, False))
    assert len(shared) == 1
    assert len(apart) == 2


@effect
def device_config(tmp_path: Path) -> None:
    both = made(device_config="wh_n300").plan
    assert (both["num_chips"], both["grid"]) == (2, [8, 8])
    assert made(device_config="wh_n150").plan["grid"] == [9, 8]
    assert made(device_config="gs_e150").plan["chip"] == "grayskull"


@pytest.mark.parametrize("name", EFFECTS)
def test_effect(name: str, tmp_path: Path) -> None:
    EFFECTS[name](tmp_path)


def test_what_cannot_be_compiled_is_told() -> None:
    model, x = nn.Linear(8, 4), torch.ones(2, 8)
    with pytest.raises(CompilerOptionError, match=r"sample_inputs is a Tensor; it takes a tuple .*\(x,\)"):
        torch_loom.compile(model, x)
    with pytest.raises(CompilerOptionError, match="sample_inputs is a dict"):
        torch_loom.compile(model, {"input": x})
    with pytest.raises(CompilerOptionError, match=r"do you mean .*math_fidelity"):
        torch_loom.compile(model, (x,), math_fidelty="LoFi")


def test_a_model_without_ops_for_the_chip_stays_on_the_host() -> None:
    x = torch.ones(2, 8)
    for model in (nn.Identity(), nn.Linear(8, 4).eval()):
        run = torch_loom.compile(model, (x,), chip="atom")
        assert torch.equal(run(x).cpu(), model(x))
        assert run.plan["epochs"] == []


def test_every_option_has_an_effect_or_a_reason() -> None:
    assert len(PYBUDA_OPTIONS) == 33
    assert {*EFFECTS, *REFUSED} == {*PYBUDA_OPTIONS}
    for name in REFUSED:
        with pytest.raises(CompilerOptionError, match=f"{name}.*refused: {REFUSED[name][:20]}"):
            compiler.set_configuration_options(**{name: True})


def test_names_are_taken_in_any_case() -> None:
    for name, meant in (
        *(("default_df_override", "Bfp8_b"), ("math_fidelity", "HiFi2"), ("balancer_policy", "NLP")),
        ("dram_placement_algorithm", "ROUND_ROBIN"),
    ):
        for given in (meant.lower(), meant.upper(), meant):
            compiler.set_configuration_options(**{name: given})
            assert getattr(compiler.configuration(), name) == meant


@pytest.mark.parametrize("interactive", [True, False])
def test_a_spatial_break_begins_the_next_chip(interactive: bool) -> None:
    compiler.set_configuration_options(use_interactive_placer=interactive)
    compiler.override_op_placement("d", spatial_epoch_break=True)
    found = overrides.current()
    assert (found.chip_breaks, found.epoch_breaks) == ((["d"], []) if interactive else ([], ["d"]))


def test_one_call_drops_options_breaks_and_overrides() -> None:
    compiler.set_configuration_options(math_fidelity="LoFi")
    compiler.set_epoch_break("a")
    compiler.set_chip_break("b")
    compiler.override_op_size("c", (1, 1))
    compiler.override_op_placement("d", start=(0, 0))
    compiler.override_t_stream_dir("e", "r")
    compiler.configure_mixed_precision(name_regex="f", output_df="Bfp8_b")
    assert overrides.current() != overrides.Overrides()
    compiler.reset_configuration()
    assert overrides.current() == overrides.Overrides()
    assert compiler.configuration() == compiler.Options()
