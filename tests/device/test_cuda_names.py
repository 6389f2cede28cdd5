"""Names of torch.cuda that are errors, stand for NVIDIA's objects, or belong to no other group."""

from __future__ import annotations

import ast
import dataclasses
import re
from pathlib import Path
from types import ModuleType

import pytest
import torch
import torch.cuda.gds
import torch.cuda.green_contexts
import torch.cuda.tunable

import torch_loom.device as loom
from torch_loom import errors
from torch_loom.cuda.names import top_level
from torch_loom.device import _graph_annotations, _sanitizer, amp, gds, green_contexts, nccl, random, tunable
from torch_loom.errors import NotApplicableError

REFUSED: dict[ModuleType, tuple[str, ...]] = {
    top_level: (
        "cudart",
        "check_error",
        "cudaStatus",
        "current_blas_handle",
        "current_solver_handle",
        "get_gencode_flags",
        "GreenContext",
    ),
    green_contexts: ("GreenContext",),
    gds: (
        "GdsFile",
        "gds_deregister_buffer",
        "gds_register_buffer",
    ),
    nccl: (
        "init_rank",
        "unique_id",
        "version",
    ),
    tunable: (
        "mgpu_tune_gemm_in_file",
        "tune_gemm_in_file",
    ),
}


def test_no_name_of_pytorchs_modules_is_missed() -> None:
    assert set(REFUSED[green_contexts]) == set(torch.cuda.green_contexts.__all__)
    assert set(REFUSED[gds]) == set(torch.cuda.gds.__all__)
    assert set(tunable.__all__) == set(torch.cuda.tunable.__all__)


@pytest.mark.exercises(
    "torch.cuda.gds.GdsFile",
    "torch.cuda.gds.gds_deregister_buffer",
    "torch.cuda.gds.gds_register_buffer",
    "torch.cuda.tunable.mgpu_tune_gemm_in_file",
    "torch.cuda.tunable.tune_gemm_in_file",
    "torch.cuda.cudart",
    "torch.cuda.check_error",
    "torch.cuda.cudaStatus",
    "torch.cuda.current_blas_handle",
    "torch.cuda.current_solver_handle",
    "torch.cuda.get_gencode_flags",
    "torch.cuda.GreenContext",
    "torch.cuda.green_contexts.GreenContext",
)
@pytest.mark.parametrize(
    ("module", "name"), [(module, name) for module, names in REFUSED.items() for name in names]
)
def test_nvidias_objects_say_why_they_are_not_here(module: ModuleType, name: str) -> None:
    for arguments in ((), (1, 2)):
        with pytest.raises(NotApplicableError, match=rf"torch\.loom\.\S*{name} stands for .+: .+"):
            getattr(module, name)(*arguments)
    assert isinstance(NotApplicableError(), NotImplementedError)


def test_annotations_of_graphs_have_all_names_of_pytorchs_module() -> None:
    tree = ast.parse(Path(torch.cuda.__file__).with_name("_graph_annotations.py").read_text(encoding="utf-8"))
    names = {node.name for node in tree.body if isinstance(node, ast.FunctionDef)}
    names |= {node.target.id for node in tree.body if isinstance(node, ast.AnnAssign)}  # type: ignore[union-attr]
    assert len(names) > 25
    assert {"_is_tools_id_unavailable", "_annotations_enabled", "_kernel_annotations"} <= names
    assert [name for name in sorted(names) if not hasattr(_graph_annotations, name)] == []
    assert not _graph_annotations._is_tools_id_unavailable()
    stream = loom.Stream()
    assert (
        _graph_annotations._get_stream_id(stream) == _graph_annotations._stream_id_map[stream.native_handle]
    )
    _graph_annotations.enable_annotations()
    assert _graph_annotations._annotations_enabled
    _graph_annotations.disable_annotations()
    assert not _graph_annotations._annotations_enabled
    assert not hasattr(_graph_annotations, "no_such_name")


def test_classes_of_nvidias_refuse_their_members_too() -> None:
    with pytest.raises(NotApplicableError, match="green context"):
        _ = loom.GreenContext.create  # type: ignore[attr-defined]
    assert not hasattr(loom.cudaStatus, "__wrapped__")


@pytest.mark.exercises(
    "torch.cuda.CudaError",
    "torch.cuda.DeferredCudaCallError",
    "torch.cuda.AcceleratorError",
    "torch.cuda.OutOfMemoryError",
)
def test_errors_are_caught_under_cudas_names() -> None:
    with pytest.raises(loom.CudaError):
        loom.set_device(99)
    assert loom.CudaError is errors.LoomError
    assert loom.DeferredCudaCallError is errors.DeferredCallError
    with pytest.raises(loom.OutOfMemoryError):
        torch.empty(1 << 50, dtype=torch.uint8, device="loom")
    with pytest.raises(loom.AcceleratorError):
        loom.LoomGraph().capture_begin()  # on the default stream


@pytest.mark.exercises("torch.cuda.amp.amp_definitely_not_available")
def test_amp_is_available(monkeypatch: pytest.MonkeyPatch) -> None:
    assert amp.amp_definitely_not_available() is False
    monkeypatch.setattr(amp, "is_available", lambda: False)
    assert amp.amp_definitely_not_available() is True


@pytest.mark.exercises(
    "torch.cuda.random.current_device", "torch.cuda.random.device_count", "torch.cuda.random.is_initialized"
)
def test_names_of_random() -> None:
    torch.ones(1, device="loom")
    assert random.is_initialized() is True
    assert random.device_count() == 2
    with loom.device(1):
        assert random.current_device() == 1


@pytest.mark.exercises("torch.cuda._sanitizer.zip_by_key", "torch.cuda._sanitizer.zip_arguments")
def test_zipping() -> None:
    assert list(_sanitizer.zip_by_key({"a": 1, "b": 2}, {"b": 3, "c": 4})) == [("b", 2, 3)]
    schema = torch.ops.aten.add.Tensor._schema
    pairs = _sanitizer.zip_arguments(schema, (1, 2), {"alpha": 3, "out": 4})
    assert [(argument.name, value) for argument, value in pairs] == [("self", 1), ("other", 2), ("alpha", 3)]
    one = _sanitizer.zip_arguments(schema, (1,), {"other": 2})
    assert [(argument.name, value) for argument, value in one] == [("self", 1), ("other", 2)]


@pytest.mark.exercises(
    "torch.cuda._sanitizer.ArgumentHandler",
    "torch.cuda._sanitizer.TK",
    "torch.cuda._sanitizer.TVa",
    "torch.cuda._sanitizer.TVb",
)
def test_argument_handler() -> None:
    x, y, host = torch.ones(2, device="loom"), torch.ones(2, device="loom"), torch.ones(2)
    handler = _sanitizer.ArgumentHandler()
    handler.parse_inputs(torch.ops.aten.add_.Tensor._schema, (x, y), {}, is_factory=False)
    handler.parse_outputs(torch.ops.aten.add_.Tensor._schema, x, is_factory=False)
    assert handler.dataptrs_written == {x.data_ptr()}
    assert handler.dataptrs_read == {y.data_ptr()}
    assert handler.outputs == {x.data_ptr()}
    assert handler.tensor_aliases == {x.data_ptr(): ["self"], y.data_ptr(): ["other"]}
    lists = _sanitizer.ArgumentHandler()
    lists.parse_inputs(torch.ops.aten.cat.default._schema, ([x, host, y],), {}, is_factory=False)
    assert lists.dataptrs_read == {x.data_ptr(), y.data_ptr()}
    views = _sanitizer.ArgumentHandler()
    views.parse_inputs(torch.ops.aten.view.default._schema, (x, [2]), {}, is_factory=False)
    views.parse_outputs(torch.ops.aten.zeros_like.default._schema, y, is_factory=True)
    assert not views.dataptrs_read | views.dataptrs_written
    assert views.outputs == {y.data_ptr()}
    parameters = (_sanitizer.TK, _sanitizer.TVa, _sanitizer.TVb)
    assert [parameter.__name__ for parameter in parameters] == ["TK", "TVa", "TVb"]


@pytest.mark.exercises(
    "torch.cuda._graph_annotations.clear_kernel_annotations",
    "torch.cuda._graph_annotations.disable_annotations",
    "torch.cuda._graph_annotations.enable_annotations",
    "torch.cuda._graph_annotations.get_kernel_annotations",
    "torch.cuda._graph_annotations.get_stream_for_pg",
    "torch.cuda._graph_annotations.mark_kernels",
    "torch.cuda._graph_annotations.mark_stream",
    "torch.cuda._graph_annotations.remap_to_exec_graph",
    "torch.cuda._graph_annotations.resolve_pending_annotations",
)
def test_annotations_of_captured_work() -> None:
    marks = _graph_annotations
    x, graph = torch.ones(3, device="loom"), loom.LoomGraph()
    # One after the other from the pool, so they differ: the default stream of captures may be either.
    side, main = loom.Stream(), loom.Stream()
    _ = x + 1, x * 2
    marks.enable_annotations()
    try:
        with marks.mark_kernels("outside"):
            _ = x + 1
        with loom.graph(graph, stream=main):
            y = x + 1
            with marks.mark_kernels("outer"):
                with marks.mark_kernels({"str": "inner", "n": 1}):
                    y = y * 2
                y = y + 1
            side.wait_stream(loom.current_stream())
            with marks.mark_stream(side, "side"):
                z = y * 2
                assert loom.current_stream() == side
            loom.current_stream().wait_stream(side)
        marks.resolve_pending_annotations()
        marks.remap_to_exec_graph(graph)
        found = dict(sorted(marks.get_kernel_annotations().items()))
        lane = found[max(found)][0].pop("stream")
        assert lane >= 60
        assert [said for (said,) in found.values()] == [
            {"str": "inner", "n": 1},
            {"str": "outer"},
            {"str": "side"},
        ]
        capture = loom.LoomGraph.captures_begun
        assert [(key >> 32, key & 0xFFFFFFFF) for key in found] == [(capture, 1), (capture, 2), (capture, 3)]
        assert marks.get_stream_for_pg("dp") == marks.get_stream_for_pg("dp") != lane
        with pytest.raises(TypeError, match="int"):
            marks.remap_to_exec_graph(3)  # type: ignore[arg-type]
    finally:
        marks.disable_annotations()
        marks.clear_kernel_annotations()
    assert marks.get_kernel_annotations() == {}
    with loom.graph(loom.LoomGraph()), marks.mark_kernels("disabled"):
        _ = x + 1
    marks.resolve_pending_annotations()
    assert marks.get_kernel_annotations() == {}
    graph.replay()
    assert z.tolist() == [10.0] * 3


@pytest.mark.exercises(
    "torch.cuda.tunable.enable",
    "torch.cuda.tunable.get_filename",
    "torch.cuda.tunable.get_max_tuning_duration",
    "torch.cuda.tunable.get_max_tuning_iterations",
    "torch.cuda.tunable.get_results",
    "torch.cuda.tunable.get_rotating_buffer_size",
    "torch.cuda.tunable.get_validators",
    "torch.cuda.tunable.is_enabled",
    "torch.cuda.tunable.read_file",
    "torch.cuda.tunable.record_untuned_enable",
    "torch.cuda.tunable.record_untuned_is_enabled",
    "torch.cuda.tunable.set_filename",
    "torch.cuda.tunable.set_max_tuning_duration",
    "torch.cuda.tunable.set_max_tuning_iterations",
    "torch.cuda.tunable.set_numerical_check_tolerances",
    "torch.cuda.tunable.set_rotating_buffer_size",
    "torch.cuda.tunable.tuning_enable",
    "torch.cuda.tunable.tuning_is_enabled",
)
def test_settings_of_tunable_op_are_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tunable, "_settings", tunable._Settings())
    asked = tunable.is_enabled, tunable.tuning_is_enabled, tunable.record_untuned_is_enabled
    assert [ask() for ask in asked] == [False, True, False]
    tunable.enable()
    tunable.tuning_enable(False)
    tunable.record_untuned_enable()
    assert [ask() for ask in asked] == [True, False, True]
    assert (tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()) == (30, 100)
    tunable.set_max_tuning_duration(5)
    tunable.set_max_tuning_iterations(7)
    tunable.set_rotating_buffer_size(3)
    kept = tunable.get_max_tuning_duration(), tunable.get_max_tuning_iterations()
    assert (*kept, tunable.get_rotating_buffer_size()) == (5, 7, 3)
    assert tunable.get_filename() == "tunableop_results0.csv"
    tunable.set_filename("mine.csv", insert_device_ordinal=True)
    assert tunable.get_filename() == "mine0.csv"
    tunable.set_numerical_check_tolerances(True, 1e-5, 1e-5)
    x = torch.ones(2, 2, device="loom")
    assert (x @ x).tolist() == [[2, 2], [2, 2]]
    assert tunable.get_results() == ()
    assert not tunable.read_file("mine0.csv")
    assert ("PT_VERSION", "2.13.0") in tunable.get_validators()


@pytest.mark.parametrize(
    ("name", "arguments"),
    [
        ("enable", (1,)),
        ("tuning_enable", ("yes",)),
        ("record_untuned_enable", (None,)),
        ("set_max_tuning_duration", (1.5,)),
        ("set_max_tuning_iterations", (True,)),
        ("set_rotating_buffer_size", (2**80,)),
        ("set_filename", (3,)),
        ("set_filename", ("a.csv", "yes")),
        ("read_file", (3,)),
        ("set_numerical_check_tolerances", (True, "a")),
        ("set_numerical_check_tolerances", (True, None, [])),
    ],
)
def test_settings_of_tunable_op_take_their_types_alone(name: str, arguments: tuple[object, ...]) -> None:
    before = dataclasses.replace(tunable._settings)
    wrong = re.escape(repr(arguments[-1]))
    with pytest.raises(RuntimeError, match=rf"torch\.cuda\.tunable\.{name} expects .*, but got {wrong}"):
        getattr(tunable, name)(*arguments)
    assert tunable._settings == before
