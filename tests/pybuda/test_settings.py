"""Each setting of CompilerConfig changes what docs/pybuda_options.md says, warns, or is refused."""

from __future__ import annotations

import enum
import queue
import re
import warnings
from collections.abc import Callable
from dataclasses import MISSING, fields
from inspect import signature
from pathlib import Path
from types import UnionType
from typing import Annotated, Any, Union, get_args, get_origin

import pytest
import torch
from torch import nn

from tests.pybuda.models import SIZE, Echo, Projection, inputs
from torch_loom import pybuda
from torch_loom.errors import CompilerOptionError, PyBudaError
from torch_loom.pybuda.compiler_config import CompilerConfig
from torch_loom.pybuda.config import _get_global_compiler_config
from torch_loom.pybuda.enums import BackendDevice, BackendType, CompileDepth
from torch_loom.pybuda.execution.placing import compiled
from torch_loom.pybuda.verify import correlation
from torch_loom.pybuda.wanted import OneOf, in_words, read

SILICON: Any = {"arch": BackendDevice.Wormhole_B0, "devtype": BackendType.Silicon}
FIELDS = {field.name: field for field in fields(CompilerConfig)}
WARN = [name for name, one in FIELDS.items() if "warns" in one.metadata]
REFUSED = [name for name, one in FIELDS.items() if "refused" in one.metadata]

# Settings that are options of the compiler, whose effect tests/compiler/test_options.py shows: another value.
PLAN: dict[str, Any] = {
    "balancer_policy": "Ribbon",
    "place_on_one_row": True,
    "enable_t_streaming": False,
    "manual_t_streaming": True,
    "enable_consteval": False,
    "enable_auto_fusing": False,
    "use_interactive_placer": False,
    "enable_auto_transposing_placement": True,
    "enable_forked_dram_inputs": True,
    "enable_conv_prestride": False,
    "enable_device_tilize": True,
    "chip_placement_policy": "SNAKE",
    "default_df_override": pybuda.DataFormat.Bfp8_b,
    "default_accumulate_df": pybuda.DataFormat.Float32,
    "default_math_fidelity": pybuda.MathFidelity.LoFi,
    "amp_level": 2,
    "harvesting_mask": [0b10],
    "enable_stable_softmax": False,
    "backend_opt_level": 0,
    "input_queues_on_host": False,
    "output_queues_on_host": False,
    "dram_placement_algorithm": pybuda._C.placer.DRAMPlacementAlgorithm.CLOSEST,
    "device_config": "wh_n300",
    "enable_tvm_cpu_fallback": False,
}
# Others whose effect other tests show.
ELSEWHERE = {
    "performance_trace": "test_placing.py::test_performance_traces",
    "backend_output_dir": "test_placing.py::test_ops_have_the_names_of_the_program",
    "backend_device_descriptor_path": "test_placing.py::test_descriptors_boards_and_harvested_rows",
    "op_names_to_epoch_break": "test_placing.py::test_overrides_and_breaks",
    "op_names_to_chip_break": "test_placing.py::test_overrides_are_for_the_device_that_has_the_op",
    "balancer_op_overrides": "test_placing.py::test_overrides_and_breaks",
    "compile_subgraphs": "test_placing.py::test_the_active_subgraph_limits_the_queues",
    "show_progress": "test_progress.py::test_runs_show_it_where_asked",
    "input_queue_entries": "test_run_devices.py::test_queues_hold_the_configured_number_of_entries",
    "enable_training": "test_original_names.py::test_pybuda_compile_gives_outputs_graph_and_plan",
    "compile_depth": "test_original_names.py::test_pybuda_compile_gives_outputs_graph_and_plan",
}


def _default(name: str) -> Any:
    one = FIELDS[name]
    return one.default if one.default_factory is MISSING else one.default_factory()


def _values(declared: Any) -> list[Any]:
    """Values of a declared type."""
    origin, parts = get_origin(declared), get_args(declared)
    if origin is Annotated:
        choices = [value for limit in parts if isinstance(limit, OneOf) for value in limit.values]
        return choices or _values(parts[0])
    if origin in (Union, UnionType):
        return [value for part in parts for value in _values(part)]
    if origin is dict:
        return [{_values(parts[0])[0]: _values(parts[1])[0]}]
    if origin in (list, set):
        return [origin([_values(parts[0])[0]])]
    if isinstance(declared, type) and issubclass(declared, enum.Enum):
        return list(declared)
    return {bool: [True, False], int: [1, 2], float: [0.5], str: ["a"], type(None): [None]}.get(declared, [1])


def _other(name: str) -> Any:
    """A value that is not the default."""
    return next(value for value in _values(CompilerConfig.types()[name]) if value != _default(name))


@pytest.mark.parametrize("name", WARN)
def test_a_setting_without_counterpart_warns_once(name: str) -> None:
    config = _get_global_compiler_config()
    with pytest.warns(UserWarning, match=f"^{name} has no effect") as told:
        setattr(config, name, _other(name))
    assert told[0].filename == __file__
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        setattr(config, name, _other(name))


@pytest.mark.parametrize("name", REFUSED)
def test_a_setting_that_a_program_would_miss_is_refused(name: str) -> None:
    with pytest.raises(PyBudaError, match=f"^{name}=.* is refused"):
        setattr(_get_global_compiler_config(), name, _other(name))


@pytest.mark.parametrize(
    ("name", "call"),
    [
        ("buffering_nops_to_insert", lambda: pybuda.insert_nop("a", "b")),
        ("fracture_groups", lambda: pybuda.config.insert_fracture_group([("a", 1, 2)])),
        ("scheduler_constraints", lambda: pybuda.config.add_schedule_constraint(["a", "b"])),
        ("match_subgraph_patterns", lambda: pybuda.config.set_num_repeated_patterns(2)),
        ("op_names_dont_fuse", lambda: _get_global_compiler_config().dont_fuse("a")),
        ("op_names_manual_fuse", lambda: _get_global_compiler_config().manual_fuse(["a"])),
        ("chip_id", lambda: pybuda.config.override_op_placement("a", chip_id=0)),
        ("u_kt", lambda: pybuda.config.override_u_kt("a", 2)),
        ("t_stream_shape", lambda: pybuda.config.override_t_stream_shape("a", (1, 1))),
        (
            "input_buffer_multiplier",
            lambda: pybuda.config.override_input_buffer_multiplier("a", 0, multiplier=2),
        ),
        ("fracture_factor", lambda: pybuda.config.override_multi_op_fracture_factor("a", 2)),
        ("force_dram_parameters", lambda: pybuda.config.override_dram_parameters("a", True)),
    ],
)
def test_a_function_without_counterpart_warns(name: str, call: Callable[[], None]) -> None:
    with pytest.warns(UserWarning, match=f"^{name} has no effect") as told:
        call()
    assert told[0].filename == __file__


@pytest.mark.long
@pytest.mark.parametrize("name", PLAN)
def test_the_compiler_gets_a_setting(name: str) -> None:
    def options() -> dict[str, Any]:
        device = pybuda.TTDevice("tt0", module=Projection("p"), **SILICON)
        found: dict[str, Any] = compiled(device, [torch.rand(2, SIZE)]).plan
        pybuda.pybuda_reset()
        return {"options": found["options"], "host": found["host"]}

    _get_global_compiler_config().cpu_fallback_ops.add("matmul")
    before = options()
    _get_global_compiler_config().cpu_fallback_ops.add("matmul")
    setattr(_get_global_compiler_config(), name, PLAN[name])
    assert options() != before


def test_names_that_do_not_exist_are_refused() -> None:
    with pytest.raises(PyBudaError, match=r"'enable_auto_fusion': do you mean 'enable_auto_fusing'"):
        _get_global_compiler_config().enable_auto_fusion = False  # type: ignore[attr-defined]
    with pytest.raises(PyBudaError, match="no 'colour' to override; there are grid_shape"):
        _get_global_compiler_config().balancer_op_override("a", "colour", 1)


def test_every_setting_has_a_test() -> None:
    here = Path(__file__).read_text(encoding="utf-8")
    shown = {name for name in FIELDS if f"def test_{name}(" in here}
    assert set(FIELDS) - {*WARN, *REFUSED, *PLAN, *ELSEWHERE, *shown} == set()
    for place in ELSEWHERE.values():
        file, _, function = place.partition("::")
        assert f"def {function}(" in (Path(__file__).parent / file).read_text(encoding="utf-8"), place


def _run(module: pybuda.Module, *given: torch.Tensor, **device: Any) -> torch.Tensor:
    tt0 = pybuda.TTDevice("tt0", module=module, **(device or SILICON))
    tt0.push_to_inputs(*given)
    value: torch.Tensor = pybuda.run_inference(_sequential=True).get(timeout=60)[0].value()
    pybuda.pybuda_reset()
    return value


@pytest.mark.long
def test_cpu_fallback_ops() -> None:
    """What the host computes is not rounded."""
    layer, x = nn.Softmax(-1), torch.randn(2, SIZE)
    rounded = _run(pybuda.PyTorchModule("s", layer), x)
    pybuda.config.add_cpu_fallback_ops("softmax")
    exact = _run(pybuda.PyTorchModule("s", layer), x)
    assert torch.equal(exact, layer(x))
    assert not torch.equal(rounded, exact)
    pybuda.config.add_cpu_fallback_ops(["softmax"])
    pybuda.config.remove_cpu_fallback_ops("softmax")
    assert torch.equal(_run(pybuda.PyTorchModule("s", layer), x), rounded)


FORMAT = pybuda.DataFormat.Bfp2_b
RULES: dict[str, dict[str, Any]] = {
    "type": {"op_type": "matmul", "output_df": FORMAT},
    "name": {"name_regex": "proj.*", "output_df": FORMAT},
    "fidelity": {"op_type": "matmul", "math_fidelity": pybuda.MathFidelity.LoFi},
    "input": {"op_type": "matmul", "input_df": {1: (FORMAT, False)}},
    "inputs": {"op_type": "matmul", "input_df": FORMAT},
    "parameter": {"op_type": "matmul", "input_parameter_indices_to_optimize": [(1, 2)]},
    "intermediate": {"op_type": "matmul", "intermediate_df": pybuda.DataFormat.Bfp8_b},
}


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_mixed_precision_decides_runs_as_images(rule: str, tmp_path: Path) -> None:
    module, x = Projection("p"), torch.rand(2, SIZE)
    plain = _run(module, x)
    pybuda.configure_mixed_precision(**RULES[rule])
    device = pybuda.TTDevice("tt0", module=module, **SILICON)
    device.push_to_inputs(x)
    ran = pybuda.run_inference(_sequential=True).get(timeout=60)[0].value()
    device.compile_to_image(img_path=str(tmp_path / "p.tti"), sample_inputs=(x,))
    pybuda.pybuda_reset()
    image = pybuda.TTDevice.load_image(img_path=str(tmp_path / "p.tti"))
    image.push_to_inputs(x)
    assert torch.equal(pybuda.run_inference(_sequential=True).get(timeout=60)[0].value(), ran)
    assert not torch.equal(ran, plain)


def _trained() -> tuple[torch.Tensor, torch.Tensor]:
    """The loss and the gradient of one micro-batch."""
    torch.manual_seed(0)
    device = pybuda.TTDevice("tt0", module=Projection("p"), **SILICON)
    device.place_loss_module(pybuda.PyTorchModule("loss", nn.MSELoss()))
    x, target = torch.rand(4, SIZE), torch.rand(4, SIZE)
    losses: queue.Queue[Any] = queue.Queue()
    pybuda.initialize_pipeline(True, losses, sample_inputs=(x,), sample_targets=(target,))
    device.push_to_inputs(x)
    device.push_to_target_inputs(target)
    pybuda.run_forward(_sequential=True)
    pybuda.run_backward(zero_grad=True, _sequential=True)
    [found] = pybuda.get_parameter_gradients(_sequential=True)
    [gradient] = found.values()
    loss = losses.get(timeout=60)[0].value()
    pybuda.pybuda_reset()
    return loss, gradient.value()


@pytest.mark.long
@pytest.mark.parametrize("rule", RULES)
def test_mixed_precision_decides_training(rule: str) -> None:
    loss, gradient = _trained()
    pybuda.configure_mixed_precision(**RULES[rule])
    mixed_loss, mixed_gradient = _trained()
    assert not torch.equal(mixed_loss, loss)
    assert not torch.equal(mixed_gradient, gradient)
    assert correlation(gradient, mixed_gradient) > 0.2  # two bits


def test_a_fidelity_that_is_none_is_refused_where_it_is_given() -> None:
    with pytest.raises(PyBudaError, match="it is one of LoFi, HiFi2, HiFi3, HiFi4"):
        pybuda.config.configure_mixed_precision(name_regex=".*", math_fidelity=pybuda.MathFidelity.Invalid)


@pytest.mark.long
def test_mixed_precision_of_gradients() -> None:
    """A rule for gradients leaves the loss as it is; one that chooses no op changes no bit."""
    loss, gradient = _trained()
    pybuda.configure_mixed_precision(name_regex="no_such_op", output_df=FORMAT)
    assert all(map(torch.equal, _trained(), (loss, gradient)))
    pybuda.configure_mixed_precision(op_type="matmul", is_gradient_op=True, output_df=FORMAT)
    mixed_loss, mixed_gradient = _trained()
    assert torch.equal(mixed_loss, loss)
    assert not torch.equal(mixed_gradient, gradient)


@pytest.mark.long
def test_amp_properties() -> None:
    """Rules for gradients leave inference alone; where runs are not compiled, a rule warns."""
    module, x = Projection("p"), torch.rand(2, SIZE)
    plain = _run(module, x)
    pybuda.configure_mixed_precision(op_type="matmul", is_gradient_op=True, output_df=FORMAT)
    assert torch.equal(_run(module, x), plain)
    _get_global_compiler_config().enable_amp_light(3)
    assert not torch.equal(_run(module, x), plain)

    class Branches(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return x if x.sum() > 0 else -x

    pybuda.configure_mixed_precision(op_type="matmul", output_df=FORMAT)
    with pytest.warns(UserWarning, match="mixed precision has no effect on this run"):
        _run(pybuda.PyTorchModule("b", Branches()), x)


def test_op_intermediates_to_save() -> None:
    pybuda.set_configuration_options(op_intermediates_to_save=["no_such_op"])
    tt0 = pybuda.TTDevice("tt0", module=Echo("e"))
    tt0.push_to_inputs(*inputs())
    with pytest.raises(PyBudaError, match="no op is called no_such_op; there are"):
        pybuda.run_inference(_sequential=True).get(timeout=60)
    pybuda.pybuda_reset()
    pybuda.set_configuration_options(op_intermediates_to_save=["a"])
    tt0 = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", nn.Identity()))
    tt0.push_to_inputs(torch.rand(1, 2))
    with pytest.raises(PyBudaError, match="no PyBudaModule is placed that has a"):
        pybuda.run_inference()


def test_enable_recompute() -> None:
    calls = []

    class Counted(nn.Linear):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            calls.append(self.training)
            return super().forward(x)

    def count() -> int:
        calls.clear()
        tt0 = pybuda.TTDevice("tt0", module=pybuda.PyTorchModule("m", Counted(SIZE, 1)))
        tt0.place_loss_module(pybuda.PyTorchModule("l1", nn.L1Loss()))
        tt0.push_to_inputs(torch.rand(2, SIZE))
        tt0.push_to_target_inputs(torch.rand(2, 1))
        pybuda.run_training(_sequential=True)
        pybuda.pybuda_reset()
        return len(calls)

    once = count()
    _get_global_compiler_config().enable_recompute = True
    assert count() == 2 * once


@pytest.mark.long
def test_dram_queue_placements(tmp_path: Path) -> None:
    device = pybuda.TTDevice("tt0", module=Projection("p"), **SILICON)
    pybuda.set_configuration_options(input_queues_on_host=False)
    queues = compiled(device, [torch.rand(2, SIZE)]).plan["queues"]
    name = queues[0]["name"]
    pybuda.override_dram_queue_placement(name, channel=5)
    assert compiled(device, [torch.rand(2, SIZE)]).plan["queues"] != queues


@pytest.mark.long
def test_backend_runtime_params_path(tmp_path: Path) -> None:
    path = tmp_path / "parameters.yaml"
    pybuda.set_configuration_options(backend_runtime_params_path=str(path), store_backend_db_to_yaml=True)
    compiled(pybuda.TTDevice("tt0", module=Projection("p"), **SILICON), [torch.rand(2, SIZE)])
    assert path.exists()


@pytest.mark.long
def test_store_backend_db_to_yaml(tmp_path: Path) -> None:
    test_backend_runtime_params_path(tmp_path)


def test_backend_cluster_descriptor_path(tmp_path: Path) -> None:
    path = tmp_path / "none.yaml"
    pybuda.set_configuration_options(backend_cluster_descriptor_path=str(path))
    with pytest.raises(CompilerOptionError, match="backend_cluster_descriptor_path"):
        compiled(pybuda.TTDevice("tt0", module=Projection("p"), **SILICON), [torch.rand(2, SIZE)])


@pytest.mark.long
def test_a_harvesting_mask_may_be_every_chips() -> None:
    device = pybuda.TTDevice("tt0", module=Projection("p"), **SILICON)
    _get_global_compiler_config().harvesting_mask = 0b110
    assert compiled(device, [torch.rand(2, SIZE)]).plan["options"]["harvested_rows"] == [(1, 2)]


def test_overrides_may_be_attributes() -> None:
    override = pybuda._C.balancer.OpOverride()
    override.t_stream_dir = "n"
    assert override == {"t_stream_dir": "n"}
    with pytest.warns(UserWarning, match="input_buffer_multiplier has no effect"):
        override.input_buffer_multiplier_0 = 2
    assert override.pop("input_buffer_multiplier_0") == 2
    assert override == {"t_stream_dir": "n"}
    assert override.grid_shape is None
    with pytest.raises(PyBudaError, match=r"start is \(1, 2, 3\); it is \(row, column\)"):
        override.start = (1, 2, 3)
    with pytest.raises(PyBudaError, match="no 'colour' to override"):
        override.colour = 1


@pytest.mark.parametrize("interactive", [True, False])
def test_a_spatial_break_begins_the_next_chip(interactive: bool) -> None:
    """Without the interactive placer it begins an epoch, as in PyBuda."""
    pybuda.set_configuration_options(use_interactive_placer=interactive)
    pybuda.config.override_op_placement("project", spatial_epoch_break=True)
    config = _get_global_compiler_config()
    assert config.op_names_to_chip_break == ([["project"]] if interactive else [])
    assert config.op_names_to_epoch_break == ([] if interactive else [["project"]])


def test_depths_have_an_order() -> None:
    assert CompileDepth.INIT_COMPILE.value < CompileDepth.BALANCER_PASS.value < CompileDepth.FULL.value


def test_a_value_of_another_type_names_the_values() -> None:
    config = _get_global_compiler_config()
    with pytest.raises(PyBudaError, match="default_math_fidelity is 'x'; it is a MathFidelity: LoFi, "):
        config.default_math_fidelity = "x"
    config.default_math_fidelity = pybuda.MathFidelity.HiFi2


WRONG: dict[str, Any] = {
    "enable_consteval": "off",
    "op_intermediates_to_save": "op1",
    "balancer_policy": "nonsense",
    "backend_opt_level": 5,
    "backend_output_dir": 3,
    "amp_level": True,
    "device_config": "n300",
}


@pytest.mark.parametrize("name", [*WRONG, "input_queue_entries", "cpu_fallback_ops"])
def test_a_setting_takes_what_it_declares(name: str) -> None:
    """As an attribute, and as an option where it is one; what it takes is in the message."""
    value = {"input_queue_entries": 0, "cpu_fallback_ops": "softmax"}.get(name, WRONG.get(name))
    said = re.escape(
        f"{name} is {value!r}; it is {in_words(CompilerConfig.types()[name])}".partition(" or ")[0]
    )
    config = _get_global_compiler_config()
    with pytest.raises(PyBudaError, match=f"^{said}"):
        setattr(config, name, value)
    if name in WRONG:
        with pytest.raises(PyBudaError, match=f"^{said}"):
            pybuda.set_configuration_options(enable_recompute=True, **{name: value})
    assert config == CompilerConfig()


def test_each_default_is_of_its_type() -> None:
    for name, declared in CompilerConfig.types().items():
        assert read(name, _default(name), declared) == _default(name)


def test_rows_that_are_harvested_are_lists() -> None:
    for wrong in (3, [[0]], "12", [1, [2]], [True]):
        with pytest.raises(PyBudaError, match=r"^harvested_rows is .*: rows 1 to 5 and 7 to 11"):
            pybuda.set_configuration_options(harvested_rows=wrong)  # type: ignore[arg-type]


def test_a_keyword_that_is_wrong_names_the_nearest() -> None:
    with pytest.raises(TypeError, match="no argument 'balancer_polcy': do you mean 'balancer_policy'"):
        pybuda.set_configuration_options(balancer_polcy="Ribbon")  # type: ignore[call-arg]
    with pytest.raises(TypeError, match="no argument 'temporal_break': do you mean 'temporal_epoch_break'"):
        pybuda.config.override_op_placement("a", temporal_break=True)  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"TTDevice\(\) has no argument 'chip_id': do you mean 'chip_ids'"):
        pybuda.TTDevice("tt0", chip_id=[0])  # type: ignore[call-arg]
    with pytest.raises(TypeError, match=r"run_inference\(\) has no argument 'input_counts': do you mean"):
        pybuda.run_inference(input_counts=1)  # type: ignore[call-arg]


CALLS: list[tuple[str, Callable[..., None], dict[str, Any]]] = [
    ("input_df", pybuda.configure_mixed_precision, {"input_df": 5}),
    ("input_df", pybuda.configure_mixed_precision, {"input_df": {0: "Bfp8"}}),
    ("input_df", pybuda.configure_mixed_precision, {"input_df": [(1, 7)]}),
    ("epoch_type", pybuda.configure_mixed_precision, {"epoch_type": "Backward"}),
    (
        "input_parameter_indices_to_optimize",
        pybuda.configure_mixed_precision,
        {"input_parameter_indices_to_optimize": [(1, 3)]},
    ),
    ("start", pybuda.config.override_op_placement, {"start": (1, 2, 3)}),
    ("start", pybuda.config.override_op_placement, {"start": "xx"}),
    ("start", pybuda.config.override_op_placement, {"start": (1, -1)}),
    ("chip_id", pybuda.config.override_op_placement, {"chip_id": "x"}),
    ("shape", pybuda.config.override_t_stream_shape, {"shape": 3}),
    ("u_kt", pybuda.config.override_u_kt, {"u_kt": 0}),
    ("nop_count", pybuda.insert_nop, {"dest_ops": "b", "nop_count": "x"}),
    ("nop_count", pybuda.insert_nop, {"dest_ops": "b", "nop_count": 0}),
    ("dest_ops", pybuda.insert_nop, {"dest_ops": []}),
    ("channel", pybuda.override_dram_queue_placement, {"channel": "0"}),
]


@pytest.mark.parametrize(("argument", "function", "given"), CALLS)
def test_functions_take_what_they_declare(
    argument: str, function: Callable[..., None], given: dict[str, Any]
) -> None:
    [first] = [
        name
        for name in ("op_name", "src_op", "queue_name", "op_type")
        if name in signature(function).parameters
    ]
    value = re.escape(repr(given[argument]))
    with pytest.raises(PyBudaError, match=f"^{function.__name__}: {argument} is {value}; it is "):
        function(**{first: "a"}, **given)
    assert _get_global_compiler_config() == CompilerConfig()


def test_operands_have_formats_as_pairs() -> None:
    """Lists are pairs as well, and one format is that of all operands."""
    bfp8 = pybuda.DataFormat.Bfp8_b
    for given, kept in (
        ({0: [bfp8, True]}, {0: (bfp8, True)}),
        ([(bfp8, False)], [(bfp8, False)]),
        (bfp8, bfp8),
    ):
        pybuda.configure_mixed_precision(op_type="matmul", input_df=given)  # type: ignore[arg-type]
        assert _get_global_compiler_config().amp_properties.pop()["input_df"] == kept
