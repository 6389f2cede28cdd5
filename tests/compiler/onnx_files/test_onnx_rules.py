"""ONNX's rules for dtypes, defaults and edges, each by a graph in which another rule gives other results."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

from tests.compiler.onnx_files.models import parsed
from torch_loom.compiler import load_onnx
from torch_loom.compiler.onnx import Float, Int, Ints, op, table
from torch_loom.errors import OnnxError

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed: pip install onnx")


def run(body: str, signature: str, *inputs: Any) -> Any:
    return load_onnx(parsed(body, signature))(*inputs)


def test_dropout_of_constants_draws_at_each_call() -> None:
    body, ends = "y = Dropout{} (x, ratio, training)", "float ratio = {0.5}, bool training = {1}>"
    graph = load_onnx(
        parsed(
            "zero = ConstantOfShape (s) x = Exp (zero) " + body.format(""),
            f"(float[1] n) => (float[64] y) <int64[1] s={{64}}, {ends}",
        )
    )
    torch.manual_seed(0)
    assert not torch.equal(graph(torch.ones(1)), graph(torch.ones(1)))
    seeded = parsed(body.format(" <seed = 3>"), f"(float[64] x) => (float[64] y) <{ends}")
    with pytest.raises(OnnxError, match=r"seed.*torch\.manual_seed"):
        load_onnx(seeded)(torch.ones(64))


def test_sizes_have_the_dtype_of_the_model() -> None:
    shape = "shape = Shape (x) short = Cast <to = 6> (shape) "
    x = torch.ones(2, 3)
    made = run(shape + "y = Identity (short)", "(float[n, m] x) => (int32[2] y)", x)
    assert (made.dtype, made.tolist()) == (torch.int32, [2, 3])
    made = run(shape + "y = Add (short, k)", "(float[n, m] x) => (int32[2] y) <int32[2] k = {1, 1}>", x)
    assert (made.dtype, made.tolist()) == (torch.int32, [3, 4])
    made = run(
        shape + "y = Add (z, short)", "(float[n, m] x, int32[2] z) => (int32[2] y)", x, torch.ones(2).int()
    )
    assert (made.dtype, made.tolist()) == (torch.int32, [3, 4])
    made = run("s = Shape (x) y = Equal (s, k)", "(float[n, m] x) => (bool[2] y) <int64[2] k = {2, 2}>", x)
    assert (made.dtype, made.tolist()) == (torch.bool, [True, False])
    # Known sizes of int32, and a number that does not fit.
    fixed = "s = Shape (w) c = Cast <to = 6> (s) y = Mul (c, k)"
    ends = "(float[1] x) => (int32[1] y) <float[3] w = {1, 2, 3}, int32[1] k = {1000000000}>"
    made = run(fixed, ends, torch.ones(1))
    assert (made.dtype, made.tolist()) == (torch.int32, [3_000_000_000 - (1 << 32)])
    ranged = "s = Shape <end = 1> (x) c = Cast <to = 6> (s) n = Squeeze (c) y = Range (zero, n, one)"
    made = run(ranged, "(float[n, m] x) => (int32[k] y) <int32 zero = {0}, int32 one = {1}>", x)
    assert (made.dtype, made.tolist()) == (torch.int32, [0, 1])


def test_sizes_are_divided_towards_zero() -> None:
    body = "s = Shape <end = 1> (x) d = Sub (s, eight) y = Div (d, two)"
    ends = "(float[n] x) => (int64[1] y) <int64[1] eight = {8}, int64[1] two = {2}>"
    for length in (3, 4, 8, 11):
        assert run(body, ends, torch.ones(length)).tolist() == [int((length - 8) / 2)]
    by = "s = Shape <end = 1> (x) y = Div (s, k)"
    assert run(by, "(float[n] x) => (int64[1] y) <int64[1] k = {-2}>", torch.ones(3)).tolist() == [-1]
    known = "w = Shape (v) a = Mul (w, k) y = Div (a, two)"
    constants = f"<float[1] v = {{0}}, int64[1] k = {{{-(1 << 54) - 3}}}, int64[1] two = {{2}}>"
    wide = f"(float[1] x) => (int64[1] y) {constants}"
    assert run(known, wide, torch.ones(1)).tolist() == [-(((1 << 54) + 3) // 2)]


@pytest.mark.parametrize(
    ("name", "dtype"),
    [
        ("float16", torch.float16),
        ("double", torch.float64),
        ("bfloat16", torch.bfloat16),
        ("int32", torch.int32),
    ],
)
def test_a_choice_of_two_constants_has_their_dtype(name: str, dtype: torch.dtype) -> None:
    model = parsed(
        "y = Where (c, a, b)", f"(bool[2] c) => ({name}[2] y) <{name} a = {{0}}, {name} b = {{0}}>"
    )
    for one, number in zip(model.graph.initializer, (2, 3), strict=True):
        one.CopyFrom(onnx.helper.make_tensor(one.name, one.data_type, [], [number]))
    made = load_onnx(model)(torch.tensor([True, False]))
    assert (made.dtype, made.tolist()) == (dtype, [2, 3])


def recurrent(
    activations: Sequence[str], alpha: Sequence[float], beta: Sequence[float] = (), **how: Any
) -> Any:
    """A model of an RNN of one cell a direction, whose state is its activation of the input."""
    ways = len(activations)
    ones, zeros = np.ones((ways, 1, 1), np.float32), np.zeros((ways, 1, 1), np.float32)
    given = {"activation_alpha": list(alpha)} if alpha else {}
    given |= {"activation_beta": list(beta)} if beta else {}
    if ways == 2:
        given["direction"] = "bidirectional"
    node = onnx.helper.make_node(
        "RNN", ["x", "w", "r"], ["y"], activations=list(activations), hidden_size=1, **given, **how
    )
    info = onnx.helper.make_tensor_value_info
    graph = onnx.helper.make_graph(
        [node],
        "g",
        [info("x", 1, ["t", 1, 1])],
        [info("y", 1, ["t", ways, 1, 1])],
        [onnx.numpy_helper.from_array(ones, "w"), onnx.numpy_helper.from_array(zeros, "r")],
    )
    return load_onnx(
        onnx.helper.make_model(graph, opset_imports=[onnx.helper.make_opsetid("", 17)], ir_version=8)
    )


@pytest.mark.parametrize(
    ("names", "alpha", "beta", "wanted"),
    [
        (["HardSigmoid"], [0.2], [0.0], [0.0]),
        (["HardSigmoid"], [], [], [0.1]),
        (["Elu"], [0.0], [], [0.0]),
        (["LeakyRelu"], [0.0], [], [0.0]),
        (["LeakyRelu"], [], [], [-0.02]),
        (["Affine"], [], [], [-2.0]),
        (["Sigmoid", "LeakyRelu"], [0.1], [], [0.119203, -0.2]),
        (["LeakyRelu", "Sigmoid"], [0.1, 0.0], [], [-0.2, 0.119203]),
        (["LeakyRelu", "HardSigmoid"], [0.1, 0.3], [0.8], [-0.2, 0.2]),
    ],
)
def test_numbers_of_activations(
    names: list[str], alpha: list[float], beta: list[float], wanted: list[float]
) -> None:
    made = recurrent(names, alpha, beta)(torch.full((1, 1, 1), -2.0))
    assert made.flatten().tolist() == pytest.approx(wanted, abs=1e-6)


@pytest.mark.parametrize(
    ("names", "alpha"), [(["ScaledTanh"], []), (["Sigmoid", "LeakyRelu"], [0.0, 0.1]), (["Sine"], [])]
)
def test_activations_that_are_not_clear_are_refused(names: list[str], alpha: list[float]) -> None:
    with pytest.raises(OnnxError, match="activation"):
        recurrent(names, alpha)(torch.ones(1, 1, 1))


def test_a_sequence_without_steps() -> None:
    assert recurrent(["Tanh"], [])(torch.ones(0, 1, 1)).shape == (0, 1, 1, 1)


def test_gradients_where_another_branch_is_infinite() -> None:
    for body, inputs in (
        ("y = Selu (x)", [100.0, -1.0, 0.5]),
        ("y = LpNormalization <axis = 0> (x)", [0.0] * 3),
    ):
        x = torch.tensor(inputs, requires_grad=True)
        run(body, "(float[3] x) => (float[3] y)", x).sum().backward()
        assert x.grad is not None
        assert x.grad.isfinite().all(), body
    x = torch.tensor([100.0, -1.0, 0.5])
    torch.testing.assert_close(run("y = Selu (x)", "(float[3] x) => (float[3] y)", x), nn.functional.selu(x))


def loop(declared: str) -> Any:
    return load_onnx(
        parsed(
            f"""
            last, y = Loop (trips, , x) <
                body = step (int64 i, bool c, float[2] s) => (bool d, float[2] t, {declared} row)
                {{ d = Identity (c)  t = Add (s, w)  row = Cast <to = 11> (t) }}
            >
            """,
            "(int64 trips, float[2] x) => (float[2] last, double[n, 2] y) <float[2] w = {1, 2}>",
        )
    )


def test_a_loop_without_trips_has_empty_outputs() -> None:
    graph, x = loop("double[2]"), torch.zeros(2)
    last, rows = graph(torch.tensor(2), x)
    assert rows.tolist() == [[1, 2], [2, 4]]
    last, rows = graph(torch.tensor(0), x)
    assert torch.equal(last, x)
    assert (rows.dtype, rows.shape) == (torch.float64, (0, 2))


def test_a_scan_of_nothing_has_empty_outputs() -> None:
    graph = load_onnx(
        parsed(
            """
            last, y = Scan <num_scan_inputs = 1, scan_output_axes = [1],
                body = step (float[2] s, float[2] one) => (float[2] t, float[2] row)
                { t = Add (s, one)  row = Neg (t) }> (x, rows)
            """,
            "(float[2] x, float[n, 2] rows) => (float[2] last, float[2, n] y)",
        )
    )
    assert graph(torch.zeros(2), torch.ones(3, 2))[1].tolist() == [[-1, -2, -3]] * 2
    last, rows = graph(torch.ones(2), torch.ones(0, 2))
    assert (last.tolist(), rows.shape) == ([1, 1], (2, 0))


def test_a_function_says_what_it_takes() -> None:
    # Annotations that are objects, as in a module without annotations from the future, and the plain types.
    def shifted(x, places, factor=None, *, axis=0):  # type: ignore[no-untyped-def]
        return x.roll(places, axis) * (1 if factor is None else factor)

    def plain(x, places, factor=None):  # type: ignore[no-untyped-def]
        assert isinstance(places, list)
        assert isinstance(factor, float)
        return x.roll(places[0], 0) * factor

    shifted.__annotations__ = {"x": torch.Tensor, "places": Int, "factor": Float | None, "axis": int}
    plain.__annotations__ = {"x": "torch.Tensor", "places": Sequence[int], "factor": "float | None"}
    model = parsed(
        "y = Shifted (x, n, f)",
        "(float[3] x) => (float[3] y) <int64 n = {1}, float f = {2}>",
        '"" : 17, "com.example" : 1',
    )
    model.graph.node[0].domain = "com.example"
    try:
        for function in (shifted, plain):
            op("Shifted", domain="com.example", pure=False)(function)
            assert load_onnx(model)(torch.arange(3.0)).tolist() == [4, 0, 2]
    finally:
        del table.RULES["com.example", "Shifted"]
    assert [one.kind for one in table.find("", "ConstantOfShape", 17).inputs] == [table.Kind.INTS]  # type: ignore[union-attr]
    assert Ints is table.Ints


def test_a_function_that_does_not_say_what_it_takes_is_refused() -> None:
    def untyped(x):  # type: ignore[no-untyped-def]
        return x

    def texts(x: str) -> str:
        return x

    def unknown(x: "Nowhere") -> torch.Tensor:  # type: ignore[name-defined] # noqa: F821, UP037
        return x

    for function, message in ((untyped, "'x'.*torch.Tensor"), (texts, "'x'"), (unknown, "Nowhere")):
        with pytest.raises(OnnxError, match=message):
            op("Nothing", domain="com.example")(function)
    assert ("com.example", "Nothing") not in table.RULES


def test_an_input_has_as_many_dimensions_as_declared() -> None:
    graph = load_onnx(parsed("y = Shape (x)", "(float[2, 3] x) => (int64[2] y)"))
    assert graph(torch.ones(5, 3)).tolist() == [5, 3]
    with pytest.raises(OnnxError, match=r"2 dimensions for its input x \(\[2, 3\]\).*3: \[2, 3, 4\]"):
        graph(torch.ones(2, 3, 4))


def test_graphs_that_share_a_name_do_not_share_its_dimensions() -> None:
    graph = load_onnx(
        parsed(
            """
            y = If (flag) <
                then_branch = yes () => (int64[n] a) { v = Identity (x) a = Shape (v) },
                else_branch = no () => (int64[m] b) { v = Unsqueeze (x, zero) b = Shape (v) }
            >
            """,
            "(float[2, 3] x, bool flag) => (int64[k] y) <int64[1] zero = {0}>",
        )
    )
    for flag, wanted in ((True, [2, 3]), (False, [1, 2, 3])):
        assert graph(torch.ones(2, 3), torch.tensor(flag)).tolist() == wanted


def test_old_models_are_converted_before_operators_are_looked_up() -> None:
    model = parsed("y = Dropout <is_test = 1> (x)", opset='"" : 6')
    assert load_onnx(model)(torch.ones(2, 3)).tolist() == [[1] * 3] * 2
    model = parsed("y = Upsample <height_scale = 2.0, width_scale = 2.0> (x)", opset='"" : 1')
    with pytest.raises(OnnxError, match="opset 1, and ONNX's converter cannot"):
        load_onnx(model)


def test_a_tied_bias_stays_tied() -> None:
    body = "c = Identity (w) a = Add (x, w) y = Mul (a, c)"
    model = parsed(body, "(float[2, 3] x) => (float[2, 3] y) <float[3] w = {1, 2, 3}>")
    assert len(list(load_onnx(model).parameters())) == 1
    exported = copy.deepcopy(model)
    exported.producer_name = "pytorch"
    assert len(list(load_onnx(exported).parameters())) == 2


def test_an_axis_that_is_not_there_is_refused() -> None:
    for body in ("Gather <axis = 5> (x, i)", "Slice (x, i, i, five)"):
        model = parsed(
            f"y = {body}", "(float[2, 3] x) => (float[a, b] y) <int64[1] i={0}, int64[1] five={5}>"
        )
        with pytest.raises(OnnxError, match=r"axis 5 of 2 dimensions: allowed are from -2 to 1"):
            load_onnx(model)(torch.ones(2, 3))


def test_the_least_integer_is_divided() -> None:
    least = -(1 << 63)
    body, ends = (
        "y = Div (x, m)",
        f"(int64[2] x) => (int64[2] y) <int64[2] m={{-1, 2}}, int64[2] k={{{least}, 3}}>",
    )
    assert run(body, ends, torch.tensor([least, 3])).tolist() == [least, 1]
    assert run("y = Div (k, m)", ends, torch.tensor([0, 0])).tolist() == [least, 1]
    assert run(body, ends.replace("{-1, 2}", "{-1, -1}"), torch.tensor([7, least])).tolist() == [-7, least]


@pytest.mark.parametrize("kind", ["uint8", "int8", "int16", "int32", "int64"])
def test_integers_that_pytorch_divides_are_divided(kind: str) -> None:
    ends = f"({kind}[3] x) => ({kind}[3] y) <{kind}[3] m={{2, 3, 4}}>"
    assert run("y = Div (x, m)", ends, torch.tensor([6, 8, 9], dtype=getattr(torch, kind))).tolist() == [
        3,
        2,
        2,
    ]


def test_a_truth_is_a_byte_that_is_not_zero() -> None:
    model = parsed(
        "c = Cast <to = 7> (w) y = Add (c, x)", "(int64[3] x) => (int64[3] y) <bool[3] w={0, 1, 1}>"
    )
    weights = model.graph.initializer[0]
    weights.ClearField("int32_data")
    weights.raw_data = b"\x00\x07\xff"
    assert load_onnx(model)(torch.zeros(3, dtype=torch.int64)).tolist() == [0, 1, 1]


def test_resizing_to_what_no_tensor_has_is_refused() -> None:
    for scale, message in (("1e20", "sizes of 0 to"), ("-1.0", "scales that are greater")):
        body = 'y = Resize <mode = "nearest"> (x, , s)'
        ends = f"(float[1, 1, 4, 4] x) => (float[a, b, c, d] y) <float[4] s={{1.0, 1.0, 1.0, {scale}}}>"
        with pytest.raises(OnnxError, match=message):
            run(body, ends, torch.ones(1, 1, 4, 4))


def test_declared_dimensions_are_not_believed() -> None:
    # A wrong declaration of what ONNX infers, and of what it cannot infer.
    wrong = onnx.helper.make_tensor_value_info("a", 1, [1, 2, 3])
    model = parsed("a = Relu (x) y = Shape (a)", "(float[2, 3] x) => (int64[k] y)")
    model.graph.value_info.append(wrong)
    assert load_onnx(model)(torch.ones(2, 3)).tolist() == [2, 3]
    model = parsed("a = Reshape (x, s) y = Shape (a)", "(float[2, 3] x, int64[n] s) => (int64[k] y)")
    model.graph.value_info.append(wrong)
    graph = load_onnx(model)
    assert graph(torch.ones(2, 3), torch.tensor([1, 2, 3])).tolist() == [1, 2, 3]
    with pytest.raises(OnnxError, match=r"3 dimensions for its value 'a', and it has 2: \[3, 2\]"):
        graph(torch.ones(2, 3), torch.tensor([3, 2]))


@pytest.mark.parametrize(
    ("body", "signature", "words"),
    [
        ("y = Add (x, n)", "(float[2] x, int64[2] n) => (float[2] y)", r"Add.*'y'.*inconsistent type.*int64"),
        ("y = Mul (x, k)", "(float[2] x) => (float[2] y) <int64[2] k = {2, 3}>", r"Mul.*inconsistent type"),
        (
            "y = Concat <axis = 0> (x, n)",
            "(float[2] x, int64[2] n) => (float[4] y)",
            "Concat.*inconsistent type",
        ),
        ("y = Sqrt (n)", "(int64[2] n) => (int64[2] y)", r"Sqrt.*unsupported type: tensor\(int64\)"),
        ("y = Where (x, x, x)", "(float[2] x) => (float[2] y)", r"Where.*unsupported type: tensor\(float\)"),
        (
            "y = Add (x, x)",
            "(float[2] x) => (int64[2] y)",
            "Add.*gives 'y' as float, and the model declares int64",
        ),
        ("y = Cast <to = 7> (x)", "(float[2] x) => (float[2] y)", "Cast.*'y' as int64, .* declares float"),
        (
            "m = Relu (x) y = Neg (m)",
            "(float[2] x) => (float[2] y) <int64[2] m>",
            "Relu.*'m' as float, .* int64",
        ),
    ],
)
def test_types_that_do_not_match_are_refused(body: str, signature: str, words: str) -> None:
    with pytest.raises(OnnxError, match=f"types do not match: .*{words}"):
        load_onnx(parsed(body, signature))


def test_types_inside_of_branches_are_compared() -> None:
    body = (
        "y = If (c) <then_branch = a () => (int64[2] t) {{ t = {} (x) }}, "
        "else_branch = b () => (int64[2] e) {{ e = Identity (n) }}>"
    )
    signature = "(bool c, float[2] x, int64[2] n) => (int64[2] y)"
    with pytest.raises(OnnxError, match=r"types do not match: .*Neg.*'t' as float, .* int64"):
        load_onnx(parsed(body.format("Neg"), signature))
    right = load_onnx(parsed(body.format("Cast <to = 7>"), signature))
    assert right(torch.tensor(True), torch.tensor([1.0, 2.0]), torch.tensor([3, 4])).tolist() == [1, 2]


def test_an_initialiser_has_the_type_of_its_input() -> None:
    model = parsed("y = Add (x, k)", "(float[2] x, float[2] k) => (float[2] y)")
    model.graph.initializer.append(onnx.helper.make_tensor("k", onnx.TensorProto.INT64, [2], [2, 3]))
    with pytest.raises(OnnxError, match="initialiser 'k' is int64, and the input of its name float"):
        load_onnx(model)
