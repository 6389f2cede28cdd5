"""Place and route: what the configuration asks for is in the netlists and traces that runs write."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import torch
import yaml
from torch import nn

from tests.pybuda.models import SIZE, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import CompilerOptionError, PlacementError, PyBudaError
from torch_loom.pybuda import op, query
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType

TILES = 4  # rows and columns of tiles of the tower's matrices
CHIP: Any = {"arch": BackendDevice.Wormhole_B0, "devtype": BackendType.Golden}


class Tower(pybuda.PyBudaModule):
    """Two floors, each a matrix, and a handrail between them."""

    def __init__(self, name: str) -> None:
        super().__init__(name)
        self.ground = pybuda.Parameter(torch.rand(32 * TILES, 32 * TILES))
        self.upper = pybuda.Parameter(torch.rand(32 * TILES, 32 * TILES))

    def forward(self, x: Any) -> Any:
        below = op.Matmul("floor.ground", x, self.ground)
        rail = op.Relu("rail", below)
        return op.Matmul("floor.upper", rail, self.upper)


def planned(folder: Path, **options: Any) -> dict[str, Any]:
    """The netlist of a run of the tower under these options."""
    pybuda.set_configuration_options(backend_output_dir=str(folder), **options)
    device = pybuda.TTDevice("tt0", module=Tower("tower"), **CHIP)
    device.push_to_inputs(torch.rand(1, 32 * TILES, 32 * TILES))
    assert pybuda.run_inference().get(timeout=60)[0].shape == (1, 32 * TILES, 32 * TILES)
    netlist: dict[str, Any] = yaml.safe_load((folder / "tt0" / "netlist.yaml").read_text())
    pybuda.shutdown()
    return netlist


def ops(netlist: dict[str, Any]) -> dict[str, Any]:
    return {
        name: one
        for graph in netlist["graphs"].values()
        for name, one in graph.items()
        if isinstance(one, dict)
    }


@pytest.mark.long
def test_ops_have_the_names_of_the_program(tmp_path: Path) -> None:
    netlist = planned(tmp_path)
    assert list(ops(netlist)) == ["floor_ground", "floor_upper"]
    assert netlist["fused_ops"]["floor_ground"]["schedules"] == [["floor_ground", "rail"]]
    assert not (tmp_path / "tt0" / "perf_trace.json").exists()


@pytest.mark.long
@pytest.mark.parametrize(
    ("options", "grids"),
    [
        ({"balancer_policy": "MinimizeGrid"}, {(1, 1)}),
        ({"place_on_one_row": True}, {(1, TILES)}),
        ({"balancer_policy": "Ribbon"}, {(TILES, TILES)}),
    ],
)
def test_policies_and_rows(options: dict[str, Any], grids: set[tuple[int, int]], tmp_path: Path) -> None:
    found = {tuple(one["grid_size"]) for one in ops(planned(tmp_path, **options)).values()}
    assert found == grids


@pytest.mark.parametrize(
    ("name", "given", "meant"),
    [
        ("balancer_policy", "minimizegrid", "MinimizeGrid"),
        ("chip_placement_policy", "snake", "SNAKE"),
        ("device_config", "WH_N300", "wh_n300"),
    ],
)
def test_names_are_taken_in_any_case(name: str, given: str, meant: str) -> None:
    pybuda.set_configuration_options(**{name: given})  # type: ignore[arg-type]
    assert getattr(pybuda.config._get_global_compiler_config(), name) == meant
    with pytest.raises(PyBudaError, match=rf"{name} is 'other'; it is one of .*{meant}"):
        pybuda.set_configuration_options(**{name: "other"})  # type: ignore[arg-type]


@pytest.mark.slow
def test_fusing_streaming_and_queues(tmp_path: Path) -> None:
    apart = ops(planned(tmp_path / "apart", enable_auto_fusing=False))
    assert list(apart) == ["floor_ground", "rail", "floor_upper"]
    pybuda.pybuda_reset()
    on_chip = planned(tmp_path / "queues", input_queues_on_host=False)
    assert on_chip["queues"]["values_0"]["loc"] == "dram"
    pybuda.pybuda_reset()
    tight = tmp_path / "tight.yaml"
    tight.write_text("worker_l1_size: 60000\n")
    given = {"balancer_policy": "MinimizeGrid", "backend_device_descriptor_path": str(tight)}
    assert max(one["t"] for one in ops(planned(tmp_path / "streamed", **given)).values()) > 1
    pybuda.pybuda_reset()
    given["balancer_policy"] = "SingleOpPerEpoch"
    assert len(planned(tmp_path / "epochs", **given)["graphs"]) == 2


@pytest.mark.slow
def test_descriptors_boards_and_harvested_rows(tmp_path: Path) -> None:
    small = tmp_path / "small.yaml"
    small.write_text("grid: {rows: 2, columns: 3}\n")
    netlist = planned(tmp_path / "a", backend_device_descriptor_path=str(small))
    assert netlist["devices"]["grid_size"] == [2, 3]
    assert all(r <= 2 and c <= 3 for r, c in (one["grid_size"] for one in ops(netlist).values()))
    pybuda.pybuda_reset()
    assert planned(tmp_path / "b", harvested_rows=[[1, 7]])["devices"]["harvested_rows"] == [[0, 5]]
    pybuda.pybuda_reset()
    assert planned(tmp_path / "c", device_config="wh_n300")["devices"]["count"] == 2
    pybuda.pybuda_reset()
    with pytest.raises(CompilerOptionError, match="backend_device_descriptor_path"):
        planned(tmp_path / "d", backend_device_descriptor_path=str(tmp_path / "none.yaml"))


@pytest.mark.long
def test_overrides_and_breaks(tmp_path: Path) -> None:
    pybuda.override_op_size("floor.ground", (2, 1))
    pybuda.config.override_op_placement("floor.upper", start=(3, 2))
    pybuda.set_epoch_break(query.name_regex(r"floor\.upper") & query.op_type("matmul"))
    netlist = planned(tmp_path)
    placed = ops(netlist)
    assert placed["floor_ground"]["grid_size"] == [2, 1]
    assert placed["floor_upper"]["grid_loc"] == [3, 2]
    assert [next(reversed(graph)) for graph in netlist["graphs"].values()] == ["floor_ground", "floor_upper"]
    pybuda.pybuda_reset()
    pybuda.configure_mixed_precision(name_regex="floor.*|rail", output_df=pybuda.DataFormat.Bfp8_b)
    assert {one["out_df"] for one in ops(planned(tmp_path)).values()} == {"Bfp8_b"}
    pybuda.pybuda_reset()
    pybuda.override_op_size("floor.ground", (99, 1))
    with pytest.raises(PlacementError, match="override_op_size asks for 99 x 1"):
        planned(tmp_path)
    pybuda.pybuda_reset()
    pybuda.set_epoch_break("florr.upper")
    with pytest.raises(PyBudaError, match=r"no device has an op 'florr\.upper'.*floor_upper"):
        planned(tmp_path)
    pybuda.pybuda_reset()
    with pytest.warns(UserWarning, match="u_kt has no effect"):
        pybuda.config.override_u_kt("floor.ground", 4)


@pytest.mark.long
def test_overrides_are_for_the_device_that_has_the_op(tmp_path: Path) -> None:
    pybuda.set_configuration_options(backend_output_dir=str(tmp_path))
    pybuda.override_op_size("mine", (1, 1))
    pybuda.set_chip_break("project")
    first = pybuda.TTDevice("tt0", module=Projection("p"), **CHIP)
    pybuda.CPUDevice("host", module=pybuda.PyTorchModule("s", nn.Softmax(-1)))

    class Later(Projection):
        def forward(self, x: Any) -> Any:
            return op.Matmul("mine", x, self.basis)

    pybuda.TTDevice("tt1", num_chips=2, module=Later("q"), **CHIP)
    first.push_to_inputs(torch.rand(2, SIZE))
    assert pybuda.run_inference().get(timeout=60)[0].shape == (2, SIZE)
    written = {
        name: yaml.safe_load((tmp_path / name / "netlist.yaml").read_text()) for name in ("tt0", "tt1")
    }
    assert [list(ops(one)) for one in written.values()] == [["project"], ["mine"]]
    assert [one["devices"]["count"] for one in written.values()] == [1, 2]
    assert not (tmp_path / "host").exists()


@pytest.mark.long
def test_performance_traces(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    for level, names in (
        (pybuda.PerfTraceLevel.LIGHT, {"epoch 0"}),
        (pybuda.PerfTraceLevel.VERBOSE, {"epoch 0", "tail", "through", "multiply_0"}),
    ):
        pybuda.set_configuration_options(performance_trace=level)
        device = pybuda.TTDevice("tt0", module=Echo("m"), **CHIP)
        pybuda.initialize_pipeline(training=False, sample_inputs=inputs())
        events = json.loads((tmp_path / "tt_build/tt0/perf_trace.json").read_text())["traceEvents"]
        assert {event["name"] for event in events} == names
        assert all(event["dur"] > 0 for event in events)
        pybuda.pybuda_reset()
    (tmp_path / "tt_build/tt0/perf_trace.json").unlink()
    device = pybuda.TTDevice("tt0", module=Echo("m"), **CHIP)
    device.push_to_inputs(inputs())
    pybuda.run_inference(_perf_trace=True, _sequential=True)
    assert (tmp_path / "tt_build/tt0/perf_trace.json").exists()


@pytest.mark.long
def test_images_obey_the_configuration(tmp_path: Path) -> None:
    pybuda.set_configuration_options(balancer_policy="MinimizeGrid")
    pybuda.override_op_size("floor.upper", (1, 2))
    device = pybuda.TTDevice("tt0", module=Tower("tower"), **CHIP)
    image = device.compile_to_image(
        img_path=str(tmp_path / "tower.tti"), sample_inputs=(torch.rand(1, 32 * TILES, 32 * TILES),)
    )
    from torch_loom.image.executable import Executable

    plan = Executable.load(image.path).plan
    grids = {one["name"]: one["grid_size"] for epoch in plan["epochs"] for one in epoch["ops"]}
    assert grids == {"floor_ground": [1, 1], "floor_upper": [1, 2]}


@pytest.mark.parametrize("in_process", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_the_active_subgraph_limits_the_queues(in_process: bool) -> None:
    import multiprocessing

    _get_global_compiler_config().compile_subgraphs = True
    context = multiprocessing.get_context("spawn") if in_process else None
    echo, projection = Echo("echo"), Projection("projection")
    device = pybuda.TTDevice("tt0", module=[echo, projection], mp_context=context)
    (dry, wet), x = inputs(), torch.rand(2, SIZE)
    device.push_to_inputs(dry, wet)
    device.set_active_subgraph(1)
    assert device.get_active_subgraph() == 1
    with pytest.raises(PyBudaError, match="must be pushed"):
        device.get_first_inputs(peek=True)  # the first sub-graph's are not this one's
    for factor in (1, 2, 3):
        device.push_to_inputs(factor * x)  # of another batch size, too
    device.set_active_subgraph(0)
    results = pybuda.initialize_pipeline(training=False)
    pybuda.run_forward()
    device.set_active_subgraph(1)
    pybuda.run_forward(2)
    first = [value.value() for value in results.get(timeout=60)]
    for got, expected in zip(first, echo.reference(dry, wet), strict=True):
        torch.testing.assert_close(got, expected)
    for factor in (1, 2):
        (got,) = results.get(timeout=60)
        torch.testing.assert_close(got.value(), factor * x @ projection.basis.value())
    # The last of its inputs waits while the other sub-graph runs.
    device.set_active_subgraph(0)
    device.push_to_inputs(dry, wet)
    pybuda.run_forward(1, _sequential=True)
    assert len(results.get(timeout=60)) == 2
    device.set_active_subgraph(1)
    pybuda.run_forward(1, _sequential=True)
    torch.testing.assert_close(results.get(timeout=60)[0].value(), 3 * x @ projection.basis.value())
    with pytest.raises(PyBudaError, match="2 is none of the 2 sub-graphs"):
        device.set_active_subgraph(2)
    device.remove_modules()
    assert device.get_active_subgraph() == 0


def test_a_run_without_end_ends_before_another_subgraph_runs() -> None:
    _get_global_compiler_config().compile_subgraphs = True
    projection = Projection("projection")
    device = pybuda.TTDevice("tt0", module=[Echo("echo"), projection])
    device.push_to_inputs(inputs())
    results = pybuda.run_inference(input_count=0)
    assert len(results.get(timeout=60)) == 2
    device.set_active_subgraph(1)
    x = torch.rand(2, SIZE)
    device.push_to_inputs(x)
    (got,) = pybuda.run_inference().get(timeout=60)
    torch.testing.assert_close(got.value(), x @ projection.basis.value())


def test_training_of_one_subgraph_leaves_the_other() -> None:
    _get_global_compiler_config().compile_subgraphs = True
    device = pybuda.TTDevice(
        "tt0",
        module=[Projection("a"), Projection("b")],
        optimizer=pybuda.SGD(0.1, device_params=True),
    )
    device.place_loss_module(op.loss.L1Loss("loss"))
    before = {name: value.value() for name, value in device.get_parameter_checkpoint().items()}
    device.set_active_subgraph(1)
    device.push_to_inputs(torch.rand(2, SIZE))
    device.push_to_target_inputs(torch.rand(2, SIZE))
    after = pybuda.run_training(_sequential=True).get(timeout=60)[0]
    changed = [name for name, value in after.items() if not torch.equal(value.value(), before[name])]
    assert changed == ["b.basis"]
