"""ONNX models: equal to what was exported, compiled, trained, and refused where they are unsafe."""

from __future__ import annotations

import copy
import struct
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn

import torch_loom
from tests.compiler.onnx_files.models import MODELS, parsed, saved
from torch_loom.compiler import load_onnx
from torch_loom.errors import CompilerOptionError, ExportError, OnnxError

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed: pip install onnx")


@pytest.fixture(autouse=True)
def _no_cache(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_COMPILE_CACHE", "off")


def first(value: Any) -> torch.Tensor:
    made: torch.Tensor = value[0] if isinstance(value, tuple) else value
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_an_exported_model_computes_what_it_was_exported_from(name: str, tmp_path: Path) -> None:
    model, inputs = MODELS[name]()
    path = saved(tmp_path / "model.onnx", model, inputs)
    graph = load_onnx(path)
    torch.testing.assert_close(graph(*inputs), model(*inputs), rtol=1e-5, atol=1e-5)
    on_device = copy.deepcopy(graph).to("loom")(*(value.to("loom") for value in inputs))
    torch.testing.assert_close(
        [value.cpu() for value in on_device], list(model(*inputs)), rtol=1e-5, atol=1e-5
    )
    if name == "bert":
        return  # compiled below, with sizes that are left open
    executable = torch_loom.compile(path, inputs, chip="wormhole_b0")
    assert not executable.host_nodes
    assert all(torch.equal(a.cpu(), b.cpu()) for a, b in zip(executable(*inputs), on_device, strict=True))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_sizes_that_a_model_leaves_open_are_those_of_the_run(name: str, tmp_path: Path) -> None:
    model, inputs = MODELS[name]()
    names = [f"input_{number}" for number in range(len(inputs))]
    axes = {one: {0: "batch"} for one in names}
    path = saved(tmp_path / "model.onnx", model, inputs, input_names=names, dynamic_axes=axes)
    graph = load_onnx(path)
    more = tuple(torch.cat([value, value[:1]]) for value in inputs)
    torch.testing.assert_close(graph(*more), model(*more), rtol=1e-5, atol=1e-5)
    torch.testing.assert_close(first(torch_loom.compile(path, more)(*more)).cpu(), first(model(*more)))


@pytest.mark.slow
@pytest.mark.parametrize("name", MODELS)
def test_what_the_exporter_of_dynamo_writes(name: str, tmp_path: Path) -> None:
    pytest.importorskip("onnxscript", reason="the exporter needs it: pip install onnxscript")
    model, inputs = MODELS[name]()
    batch = tuple({0: torch.export.Dim("batch")} for _ in inputs)
    path = saved(tmp_path / "model.onnx", model, inputs, dynamo=True, dynamic_shapes=(batch,))
    graph = load_onnx(path)
    for given in (inputs, tuple(torch.cat([value, value[:1]]) for value in inputs)):
        torch.testing.assert_close(graph(*given), model(*given), rtol=1e-5, atol=1e-5)


def test_training_changes_what_it_changes_in_pytorch(tmp_path: Path) -> None:
    torch.manual_seed(0)
    model = nn.Sequential(
        nn.Conv2d(3, 4, 3), nn.BatchNorm2d(4), nn.ReLU(), nn.Flatten(), nn.Linear(4 * 36, 5), nn.LayerNorm(5)
    ).eval()
    x, target = torch.randn(6, 3, 8, 8), torch.randint(0, 5, (6,))
    preserve = torch.onnx.TrainingMode.PRESERVE
    path = saved(tmp_path / "m.onnx", model, (x,), training=preserve, do_constant_folding=False)
    graph = load_onnx(path).to("loom")
    names = {name for name, _ in model.named_parameters()}
    assert {name for name, _ in graph.named_parameters()} == names
    assert {name for name, _ in graph.named_buffers()} == {"1.running_mean", "1.running_var"}
    for module, place in ((model, "cpu"), (graph, "loom")):
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(3):
            optimizer.zero_grad()
            nn.functional.cross_entropy(module(x.to(place)), target.to(place)).backward()
            optimizer.step()
    for name, parameter in graph.named_parameters():
        torch.testing.assert_close(
            parameter.detach().cpu(), model.get_parameter(name).detach(), rtol=1e-4, atol=1e-5
        )


def test_sizes_are_computed_without_tensors() -> None:
    graph = load_onnx(
        parsed(
            """
            shape = Shape (x)
            rows = Gather <axis = 0> (shape, zero)
            twice = Mul (rows, two)
            long = Unsqueeze (twice, first)
            wanted = Concat <axis = 0> (long, rest)
            y = Reshape (x, wanted)
            """,
            "(float[n, 4] x) => (float[m, 2] y) "
            "<int64 zero = {0}, int64 two = {2}, int64[1] first = {0}, int64[1] rest = {-1}>",
        )
    )
    assert "tensor" not in graph.code
    assert graph(torch.ones(3, 4)).shape == (6, 2)
    batch = torch.export.Dim("batch")
    program = torch.export.export(graph, (torch.ones(3, 4),), dynamic_shapes=({0: batch},))
    assert program.module()(torch.ones(5, 4)).shape == (10, 2)


def test_names_of_a_file_are_no_code() -> None:
    trap = 'x"); import builtins; builtins.onnx_was_here = True; ("'
    model = parsed("y = Add (x, w)", "(float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}>")
    model.graph.initializer[0].name = model.graph.node[0].input[1] = trap
    model.graph.input[0].name = model.graph.node[0].input[0] = f"{trap}0"
    model.graph.node[0].name = f"{trap}1"
    graph = load_onnx(model)
    assert graph(torch.zeros(2, 3)).tolist() == [[1, 2, 3]] * 2
    import builtins

    assert not hasattr(builtins, "onnx_was_here")
    for name in ("forward", "a.b", "a.b.c", "self", "class", "é", "1", ".", "training"):
        model.graph.initializer[0].name = model.graph.node[0].input[1] = name
        model.graph.input[0].name = model.graph.node[0].input[0] = f"{name}'"
        assert load_onnx(model)(torch.zeros(2, 3)).tolist() == [[1, 2, 3]] * 2, name


def test_an_unknown_operator_is_named_with_what_to_do() -> None:
    model = parsed("y = Twist <turns = 3> (x)", opset='"" : 17, "com.example" : 2')
    with pytest.raises(OnnxError, match=r"Twist \(ai.onnx opset 17\), 'y'.*torch_loom.compiler.onnx.op"):
        load_onnx(model)
    model.graph.node[0].domain, model.graph.node[0].name = "com.example", "twister"
    with pytest.raises(OnnxError, match=r"Twist \(com.example opset 2\), 'twister'"):
        load_onnx(model)
    from torch_loom.compiler.onnx import op, table

    @op("Twist", domain="com.example")
    def twist(x: torch.Tensor, *, turns: int = 1) -> torch.Tensor:
        return x.roll(turns)

    try:
        x = torch.arange(6.0).reshape(2, 3)
        assert torch.equal(load_onnx(model)(x), x.roll(3))
    finally:
        del table.RULES["com.example", "Twist"]


@pytest.mark.parametrize("cut", [0, 1, 7, 40, -1])
def test_a_damaged_file_is_refused(cut: int, tmp_path: Path) -> None:
    path = tmp_path / "model.onnx"
    whole = parsed("y = Relu (x)").SerializeToString()
    path.write_bytes(whole[:cut])
    with pytest.raises(OnnxError, match=r"model\.onnx"):
        load_onnx(path)
    with pytest.raises(OnnxError, match="no such file"):
        load_onnx(tmp_path / "none.onnx")


@pytest.mark.long
def test_damage_anywhere_is_an_error_of_ours() -> None:
    whole = parsed(
        "z = Gemm <transB = 1> (x, w, b) y = Relu (z)",
        "(float[2, 3] x) => (float[2, 2] y) <float[2, 3] w = {1, 2, 3, 4, 5, 6}, float[2] b = {1, 2}>",
    ).SerializeToString()
    refused = 0
    for place in range(len(whole)):
        damaged = bytearray(whole)
        damaged[place] ^= 0x15
        model = onnx.ModelProto()
        try:
            model.ParseFromString(bytes(damaged))
        except Exception:  # protobuf's own
            continue
        try:
            load_onnx(model)
        except OnnxError:
            refused += 1
    assert refused > 20


def test_external_data_comes_from_the_folder_of_the_model_alone(tmp_path: Path) -> None:
    model = parsed("y = Add (x, w)", "(float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}>")
    weights = onnx.numpy_helper.from_array(torch.tensor([1.0, 2.0, 3.0]).numpy(), "w")
    model.graph.initializer[0].CopyFrom(weights)
    folder = tmp_path / "model"
    folder.mkdir()
    path = folder / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    assert load_onnx(path)(torch.zeros(2, 3)).tolist() == [[1, 2, 3]] * 2
    stored = onnx.load(path, load_external_data=False)
    with pytest.raises(OnnxError, match="give the path"):
        load_onnx(stored)
    assert load_onnx(stored, folder)(torch.zeros(2, 3)).tolist() == [[1, 2, 3]] * 2
    outside = tmp_path / "secret.bin"
    outside.write_bytes(b"\0" * 64)
    (folder / "link.bin").symlink_to(outside)
    entries = {one.key: one for one in stored.graph.initializer[0].external_data}
    for location in ("../secret.bin", str(outside), "link.bin", "a/../../secret.bin", ""):
        entries["location"].value = location
        with pytest.raises(OnnxError, match="not in the model's folder"):
            load_onnx(stored, folder)
    entries["location"].value = "missing.bin"
    with pytest.raises(OnnxError, match="no such file"):
        load_onnx(stored, folder)
    entries["location"].value = "weights.bin"
    for key, value in (("offset", "8"), ("length", "4"), ("offset", "-4"), ("length", "many")):
        kept, entries[key].value = entries[key].value, value
        with pytest.raises(OnnxError, match=r"takes 12 bytes|no number"):
            load_onnx(stored, folder)
        entries[key].value = kept
    stored.graph.initializer[0].dims[0] = 1 << 60
    with pytest.raises(OnnxError, match="takes"):
        load_onnx(stored, folder)


def test_constants_that_grow_are_not_computed_before_the_run() -> None:
    model = parsed(
        "big = ConstantOfShape (s) y = Add (x, big)",
        "(float[1] x) => (float[n] y) <int64[2] s = {1000000000000, 1000000}>",
    )
    assert isinstance(load_onnx(model), torch.fx.GraphModule)


def test_values_decide_in_eager_mode_and_are_refused_by_the_compiler() -> None:
    model = parsed("y = Reshape (x, s)", "(float[2, 3] x, int64[2] s) => (float[a, b] y)")
    assert load_onnx(model)(torch.ones(2, 3), torch.tensor([3, 2])).shape == (3, 2)
    with pytest.raises(ExportError, match="depends on the values of tensors"):
        torch_loom.compile(model, (torch.ones(2, 3), torch.tensor([3, 2])))


def test_without_onnx_its_installation_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setitem(sys.modules, "onnx", None)
    (tmp_path / "model.onnx").write_bytes(b"x")
    with pytest.raises(OnnxError, match=r"pip install 'onnx>=1\.19'"):
        load_onnx(tmp_path / "model.onnx")


def test_what_is_no_model_is_said() -> None:
    with pytest.raises(CompilerOptionError, match="module is a int"):
        torch_loom.compile(3, ())
    with pytest.raises(OnnxError, match="not a int"):
        load_onnx(3)


def test_functions_that_grow_are_refused_before_they_are_inlined() -> None:
    helper, own = onnx.helper, [onnx.helper.make_opsetid("", 17), onnx.helper.make_opsetid("my", 1)]
    functions = [
        helper.make_function("my", "F0", ["a"], ["b"], [helper.make_node("Relu", ["a"], ["b"])], own)
    ]
    for number in range(1, 40):
        name = f"F{number - 1}"
        twice = [helper.make_node(name, [a], [b], domain="my") for a, b in (("a", "t"), ("t", "b"))]
        functions.append(helper.make_function("my", f"F{number}", ["a"], ["b"], twice, own))
    info = helper.make_tensor_value_info
    for number, allowed in ((3, True), (39, False)):
        call = helper.make_node(f"F{number}", ["x"], ["y"], domain="my")
        graph = helper.make_graph([call], "g", [info("x", 1, [2])], [info("y", 1, [2])])
        model = helper.make_model(graph, functions=functions, opset_imports=own, ir_version=8)
        if allowed:
            assert load_onnx(model)(torch.tensor([-1.0, 2.0])).tolist() == [0, 2]
        else:
            with pytest.raises(
                OnnxError, match=r"with the calls of its functions it has 1,\d+,\d+,\d+,\d+ nodes"
            ):
                load_onnx(model)


@pytest.mark.long
def test_more_graphs_than_are_read() -> None:
    branch = parsed("y = Relu (x)").graph
    del branch.input[:]
    for _ in range(13):
        node = onnx.helper.make_node("If", ["c"], ["y"], then_branch=branch, else_branch=branch)
        branch = onnx.helper.make_graph([node], "g", [], list(branch.output))
    model = parsed("y = Relu (x)", "(float[2, 3] x) => (float[2, 3] y) <bool c = {1}>")
    del model.graph.node[:]
    model.graph.node.extend(branch.node)
    with pytest.raises(OnnxError, match="more than 4,096 graphs"):
        load_onnx(model)


def test_names_that_modules_have_are_other_names() -> None:
    names = ("_parameters.x", "training", "meta", "__dict__", ".".join("a" * 20_000))
    model = parsed(
        " ".join(f"y{n + 1} = Add (y{n}, w{n})" for n in range(len(names))),
        f"(float[3] y0) => (float[3] y{len(names)}) <"
        + ", ".join(f"float[3] w{n} = {{1, 2, 3}}" for n in range(len(names)))
        + ">",
    )
    for node, one, name in zip(model.graph.node, model.graph.initializer, names, strict=True):
        node.input[1] = one.name = name
    assert load_onnx(model)(torch.zeros(3)).tolist() == [5, 10, 15]


def test_large_constants_are_not_combined_before_the_run() -> None:
    for body in ("Add (w, v)", "MatMul (w, v)", "Gather <axis = 1> (v, i)"):
        model = parsed(
            f"z = {body} y = Shape (z)",
            "(float[1] x) => (int64[n] y) <int64[1] w = {0}, int64[1] v = {0}, int64[1] i = {0}>",
        )
        for one, dims in zip(model.graph.initializer, ([1 << 16, 1], [1, 1 << 16], [1 << 16]), strict=True):
            one.ClearField("int64_data")
            one.dims[:], one.raw_data = dims, bytes(8 << 16)
        assert isinstance(load_onnx(model), torch.fx.GraphModule)
    ranged = "r = Range (zero, five, step) y = Shape (r)"
    ends = "(float[1] x) => (int64[1] y) <float zero = {0}, float five = {5}, float step = {1e-12}>"
    assert isinstance(load_onnx(parsed(ranged, ends)), torch.fx.GraphModule)


def test_sizes_of_the_run_have_an_end() -> None:
    squares = "s0 = Shape (x) " + " ".join(f"s{n + 1} = Mul (s{n}, s{n})" for n in range(40))
    graph = load_onnx(parsed(squares + " y = Identity (s40)", "(float[n] x) => (int64[1] y)"))
    assert sum(node.op == "call_function" for node in graph.graph.nodes) < 100
    assert graph(torch.ones(1)).tolist() == [1]
    doubled = "s0 = Shape (x) " + " ".join(f"s{n + 1} = Concat <axis = 0> (s{n}, s{n})" for n in range(16))
    graph = load_onnx(parsed(doubled + " y = Identity (s16)", "(float[n] x) => (int64[m] y)"))
    assert graph(torch.ones(3)).tolist() == [3] * (1 << 16)


def test_external_data_of_attributes(tmp_path: Path) -> None:
    model = parsed("w = Constant <value = float[3] {1, 2, 3}> () y = Add (x, w)")
    value = model.graph.node[0].attribute[0].t
    value.ClearField("float_data")
    value.data_location = onnx.TensorProto.EXTERNAL
    value.external_data.add(key="location", value="weights.bin")
    (tmp_path / "weights.bin").write_bytes(struct.pack("<3f", 1, 2, 3))
    assert load_onnx(model, tmp_path)(torch.zeros(2, 3)).tolist() == [[1, 2, 3]] * 2
    value.external_data[0].value = "/etc/passwd"
    with pytest.raises(OnnxError, match="not in the model's folder"):
        load_onnx(model, tmp_path)


def test_what_cannot_be_computed_names_the_node() -> None:
    model = parsed("y = Transpose <perm = [0, 0]> (x)")
    with pytest.raises(OnnxError, match=r"node 'transpose' of the ONNX model cannot be computed: .*perm"):
        torch_loom.compile(model, (torch.ones(2, 3),))


def test_a_scan_of_more_than_its_inputs_is_refused() -> None:
    model = parsed(
        "y = Scan <num_scan_inputs = 1, body = step (float[3] one) => (float[3] row) { row = Neg (one) }> (x)"
    )
    for number in (-5, 0, 2, 1 << 40):
        next(one for one in model.graph.node[0].attribute if one.name == "num_scan_inputs").i = number
        with pytest.raises(OnnxError, match=f"num_scan_inputs is {number}; of 1 inputs it takes 1 to 1"):
            load_onnx(model)
