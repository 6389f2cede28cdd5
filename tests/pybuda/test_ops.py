"""Every op of PyBuda: values against PyTorch, parameters that are not the default, gradients by gradcheck."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch.nn import functional

from torch_loom.errors import PyBudaError
from torch_loom.pybuda import Tensor, op
from torch_loom.pybuda.execution import trace

Torch = torch.Tensor


def rand(*shape: int, low: float = 0.1, high: float = 1.0) -> Torch:
    """Values of distinct sizes, so that maxima and gradients are well defined."""
    generator = torch.Generator().manual_seed(sum(shape) + 1)
    return torch.rand(*shape, generator=generator, dtype=torch.float64) * (high - low) + low


A, B, ROW = rand(2, 3, 4), rand(2, 3, 4, low=-1.0), rand(1, 1, 4)
IMAGE, KERNEL, BIAS = rand(1, 4, 6, 6), rand(6, 2, 3, 3), rand(6)
LAST = IMAGE.movedim(1, -1)
VOLUME = rand(1, 2, 4, 4, 4)
Case = tuple[str, Callable[..., Any], tuple[Torch, ...], Callable[..., Any]]

# Name, op of named operands, operands, what PyTorch makes of them.
CASES: list[Case] = [
    ("Abs", lambda x: op.Abs("", x), (B,), torch.abs),
    ("Add", lambda x, y: op.Add("", x, y), (A, ROW), torch.add),
    ("Add.number", lambda x: op.Add("", x, 2), (A,), lambda x: x + 2),
    ("AdvIndex", lambda x: op.AdvIndex("", x, torch.tensor([2, 0]), 1), (A,), lambda x: x[:, [2, 0]]),
    ("AvgPool1d", lambda x: op.AvgPool1d("", x, 2, 2, 1, True, False), (A,),
     lambda x: functional.avg_pool1d(x, 2, 2, 1, True, False)),
    ("AvgPool2d", lambda x: op.AvgPool2d("", x, 3), (IMAGE,), lambda x: functional.avg_pool2d(x, 3, 1, 1)),
    ("AvgPool2d.parameters",
     lambda x: op.AvgPool2d("", x, (2, 3), 2, 1, ceil_mode=True, count_include_pad=False, channel_last=True),
     (LAST,), lambda x: functional.avg_pool2d(x.movedim(-1, 1), (2, 3), 2, 1, True, False).movedim(1, -1)),
    ("AvgPool2d.divisor", lambda x: op.AvgPool2d("", x, 2, padding=0, divisor_override=2.5), (IMAGE,),
     lambda x: functional.avg_pool2d(x, 2, 1) * 4 / 2.5),
    ("BinaryStack", lambda x, y: op.BinaryStack("", x, y, -1), (A, B),
     lambda x, y: torch.stack((x, y), -1).flatten(-2)),
    ("Broadcast", lambda x: op.Broadcast("", x, -3, 5), (ROW,), lambda x: x.expand(5, 1, 4)),
    ("BudaPad", lambda x: op.BudaPad("", x, (1, 0), 7.0), (A,),
     lambda x: functional.pad(x, (0, 28, 0, 61), value=7.0)),
    ("BudaUnpad", lambda x: op.BudaUnpad("", x, (3, 4), (1, 0)), (rand(1, 64, 32),),
     lambda x: x[..., :3, :4]),
    ("Buffer", lambda x: op.Buffer("", x), (A,), lambda x: x),
    ("Clip", lambda x: op.Clip("", x, -0.5, 0.7), (B,), lambda x: x.clamp(-0.5, 0.7)),
    ("Concatenate", lambda x, y: op.Concatenate("", x, y, axis=-2), (A, B),
     lambda x, y: torch.cat((x, y), 1)),
    ("Conv2d", lambda x, w, b: op.Conv2d("", x, w, b, groups=2), (IMAGE, KERNEL, BIAS),
     lambda x, w, b: functional.conv2d(x, w, b, 1, 1, 1, 2)),
    ("Conv2d.parameters",
     lambda x, w: op.Conv2d("", x, w, None, 2, [1, 2, 0, 1], 1, 2, channel_last=True), (LAST, KERNEL),
     lambda x, w: functional.conv2d(
         functional.pad(x.movedim(-1, 1), (1, 2, 0, 1)), w, None, 2, groups=2).movedim(1, -1)),
    ("Conv2d.dilation", lambda x, w: op.Conv2d("", x, w, padding=2, dilation=2, groups=2), (IMAGE, KERNEL),
     lambda x, w: functional.conv2d(x, w, None, 1, 2, 2, 2)),
    ("Conv2d.split",
     lambda x, w: op.Conv2d("", x, list(w.permute(2, 3, 1, 0).flatten(0, 1).split(3)), groups=2),
     (IMAGE, KERNEL), lambda x, w: functional.conv2d(x, w, None, 1, 1, 1, 2)),
    ("Conv2dTranspose",
     lambda x, w, b: op.Conv2dTranspose("", x, w, b, 2, 0, 2, 2, True), (LAST, rand(4, 3, 3, 3), BIAS),
     lambda x, w, b: functional.conv_transpose2d(x.movedim(-1, 1), w, b, 2, 0, 0, 2, 2).movedim(1, -1)),
    ("Conv2dTranspose.documented", lambda x, w: op.Conv2dTranspose("", x, w), (IMAGE, rand(6, 4, 3, 3)),
     lambda x, w: functional.conv_transpose2d(x, w.transpose(0, 1), None, 1, 1)),
    ("Conv3d", lambda x, w, b: op.Conv3d("", x, w, b, 2, 1), (VOLUME, rand(3, 2, 3, 3, 3), rand(3)),
     lambda x, w, b: functional.conv3d(x, w, b, 2, 1)),
    ("Cosine", lambda x: op.Cosine("", x), (A,), torch.cos),
    ("CumSum", lambda x: op.CumSum("", x, 1), (A,), lambda x: x.cumsum(1)),
    ("CumSum.exclusive", lambda x: op.CumSum("", x, -1, True), (A,), lambda x: x.cumsum(-1) - x),
    ("DRAMQueue", lambda x: op.DRAMQueue("", x, num_entries=2), (A,), lambda x: x),
    ("Dequantize", lambda x, s: op.Dequantize("", x, s, torch.zeros(4).double(), 2, torch.float64),
     (A, rand(4)), lambda x, s: x * s),
    ("Divide", lambda x, y: op.Divide("", x, y), (A, ROW), torch.divide),
    ("Dropout.inference", lambda x: op.Dropout("", x, 0.3, training=False), (A,), lambda x: x),
    ("Embedding", lambda t: op.Embedding("", t, torch.tensor([[1, 0], [2, 1]])), (rand(3, 4),),
     lambda t: t[torch.tensor([[1, 0], [2, 1]])]),
    ("Exp", lambda x: op.Exp("", x), (A,), torch.exp),
    ("Gelu", lambda x: op.Gelu("", x), (B,), functional.gelu),
    ("Gelu.tanh", lambda x: op.Gelu("", x, approximate="tanh"), (B,),
     lambda x: functional.gelu(x, approximate="tanh")),
    ("GroupedReduceAvg", lambda x: op.GroupedReduceAvg("", x, -1, 2), (A,),
     lambda x: x.unflatten(-1, (2, 2)).mean(-1)),
    ("GroupedReduceAvg.keep", lambda x: op.GroupedReduceAvg("", x, 2, 2, keep_dims=True), (A,),
     lambda x: x.unflatten(-1, (2, 2)).mean(-1).repeat_interleave(2, -1)),
    ("HSlice", lambda x: op.HSlice("", x, 2), (A,), lambda x: torch.stack(x.split(2, -1), 1).flatten(0, 1)),
    ("HStack", lambda x: op.HStack("", x), (A,), lambda x: torch.cat(tuple(x), -1)[None]),
    ("HStack.slices", lambda x: op.HStack("", x, 2), (rand(4, 2, 3),),
     lambda x: torch.stack([torch.cat((x[0], x[1]), -1), torch.cat((x[2], x[3]), -1)])),
    ("Heaviside", lambda x, y: op.Heaviside("", x, y), (B.flatten()[:3], rand(3)), torch.heaviside),
    ("Identity", lambda x: op.Identity("", x), (A,), lambda x: x),
    ("Identity.unsqueeze", lambda x: op.Identity("", x, "unsqueeze", 1), (A,), lambda x: x[:, None]),
    ("Index", lambda x: op.Index("", x, 1, 1), (A,), lambda x: x[:, 1:2]),
    ("Index.stride", lambda x: op.Index("", x, -1, 0, 4, 2), (A,), lambda x: x[..., 0:4:2]),
    ("IndexCopy", lambda x, v: op.IndexCopy("", x, torch.tensor([2, 0]), v, 1), (A, rand(2, 2, 4)),
     lambda x, v: x.index_copy(1, torch.tensor([2, 0]), v)),
    ("Interleave", lambda x, y: op.Interleave("", x, y, axis=-1, stride=2), (A, B),
     lambda x, y: torch.cat((x[..., :2], y[..., :2], x[..., 2:], y[..., 2:]), -1)),
    ("Layernorm", lambda x, w, b: op.nn.Layernorm("", x, w, b), (A, rand(4), rand(1, 1, 4)),
     lambda x, w, b: functional.layer_norm(x, (4,), w, b.flatten())),
    ("Layernorm.dim", lambda x, w, b: op.nn.Layernorm("", x, w, b, dim=1, epsilon=0.1), (A, rand(3), rand(3)),
     lambda x, w, b: functional.layer_norm(x.mT, (3,), w, b, 0.1).mT),
    ("Batchnorm", lambda x, w, b, m, v: op.nn.Batchnorm("", x, w, b, m, v, 0.1),
     (A, rand(3), rand(3), rand(3), rand(3)),
      lambda x, w, b, m, v: functional.batch_norm(x, m, v, w, b, eps=0.1)),
    ("LeakyRelu", lambda x: op.LeakyRelu("", x, 0.3), (B,), lambda x: functional.leaky_relu(x, 0.3)),
    ("Log", lambda x: op.Log("", x), (A,), torch.log),
    ("LogSoftmax", lambda x: op.nn.LogSoftmax("", x, dim=1), (B,), lambda x: x.log_softmax(1)),
    ("LogSoftmax.plain", lambda x: op.nn.LogSoftmax("", x, dim=-1, stable=False), (B,),
     lambda x: x.log_softmax(-1)),
    ("Matmul", lambda x, y, b: op.Matmul("", x, y, b), (A, rand(4, 5), rand(5)), lambda x, y, b: x @ y + b),
    ("Max", lambda x, y: op.Max("", x, y), (A, B), torch.maximum),
    ("MaxPool1d", lambda x: op.MaxPool1d("", x, 2, 2, 1), (A,), lambda x: functional.max_pool1d(x, 2, 2, 1)),
    ("MaxPool2d", lambda x: op.MaxPool2d("", x, 3), (IMAGE,), lambda x: functional.max_pool2d(x, 3, 1, 1)),
    ("MaxPool2d.parameters",
     lambda x: op.MaxPool2d("", x, (2, 3), 2, 1, 1, True, False, True, 3.0, True), (LAST,),
     lambda x: functional.max_pool2d(x.movedim(-1, 1), (2, 3), 2, 1, 1, True).movedim(1, -1)),
    ("MaxPool3d", lambda x: op.MaxPool3d("", x, 2, 2, 0), (VOLUME,),
     lambda x: functional.max_pool3d(x, 2, 2)),
    ("Min", lambda x, y: op.Min("", x, y), (A, B), torch.minimum),
    ("Multiply", lambda x, y: op.Multiply("", x, y), (A, ROW), torch.multiply),
    ("Narrow", lambda x: op.Narrow("", x, -1, 1, 2, 3), (A,), lambda x: x[..., 1:3]),
    ("Pad", lambda x: op.Pad("", x, (1, 2)), (A,), lambda x: functional.pad(x, (1, 2))),
    ("Pad.replicate", lambda x: op.Pad("", x, (1, 0, 2, 1), "replicate"), (A,),
     lambda x: functional.pad(x, (1, 0, 2, 1), "replicate")),
    ("Pad.reflect", lambda x: op.Pad("", x, (1, 2, 0, 2), "reflect", True), (LAST,),
     lambda x: functional.pad(x.movedim(-1, 1), (1, 2, 0, 2), "reflect").movedim(1, -1)),
    ("PadTile", lambda x: op.PadTile("", x, 1, 3), (A,), lambda x: functional.pad(x, (0, 0, 0, 29))),
    ("PixelShuffle", lambda x: op.PixelShuffle("", x, 2), (IMAGE,), lambda x: functional.pixel_shuffle(x, 2)),
    ("Pow", lambda x: op.Pow("", x, 2.5), (A,), lambda x: x**2.5),
    ("Power", lambda x, y: op.Power("", x, y), (A, B), torch.pow),
    ("Reciprocal", lambda x: op.Reciprocal("", x), (A,), torch.reciprocal),
    ("ReduceAvg", lambda x: op.ReduceAvg("", x, -2), (A,), lambda x: x.mean(-2, True)),
    ("ReduceMax", lambda x: op.ReduceMax("", x, 2), (A,), lambda x: x.amax(2, True)),
    ("ReduceMax.stride", lambda x: op.ReduceMax("", x, -1, 2), (A,),
     lambda x: x.unflatten(-1, (2, 2)).amax(-1)),
    ("ReduceSum", lambda x: op.ReduceSum("", x, 0), (A,), lambda x: x.sum(0, True)),
    ("Relu", lambda x: op.Relu("", x), (B,), torch.relu),
    ("Relu.threshold", lambda x: op.Relu("", x, 0.3), (B,), lambda x: torch.where(x >= 0.3, x, 0.0)),
    ("Relu.max", lambda x: op.Relu("", x, 0.3, "max"), (B,), lambda x: x.clamp(0, 0.3)),
    ("Repeat", lambda x: op.Repeat("", x, [2, 1, 3]), (A,), lambda x: x.repeat(2, 1, 3)),
    ("Reshape", lambda x: op.Reshape("", x, (4, -1)), (A,), lambda x: x.reshape(4, 6)),
    ("Resize2d", lambda x: op.Resize2d("", x, (3, 12)), (IMAGE,),
     lambda x: functional.interpolate(x, (3, 12))),
    ("Resize2d.linear",
     lambda x: op.Resize2d("", x, (3, 9), "linear", True, extrapolation_value=5, channel_last=True), (LAST,),
     lambda x: functional.interpolate(
         x.movedim(-1, 1), (3, 9), mode="bilinear", align_corners=True).movedim(1, -1)),
    ("Resize3d", lambda x: op.Resize3d("", x, (2, 3, 8), "linear"), (VOLUME,),
     lambda x: functional.interpolate(x, (2, 3, 8), mode="trilinear")),
    ("Select", lambda x: op.Select("", x, -1, 1), (A,), lambda x: x[..., 1:2]),
    ("Select.stride", lambda x: op.Select("", x, -1, (1, 2), 3), (A,),
     lambda x: torch.cat((x[..., 1:3], torch.zeros_like(x[..., :2])), -1)),
    ("Sigmoid", lambda x: op.Sigmoid("", x), (B,), torch.sigmoid),
    ("Sine", lambda x: op.Sine("", x), (B,), torch.sin),
    ("Softmax", lambda x: op.nn.Softmax("", x, dim=-1), (B,), lambda x: x.softmax(-1)),
    ("Softmax.plain", lambda x: op.nn.Softmax("", x, dim=0, stable=False), (B,), lambda x: x.softmax(0)),
    ("SparseMatmul", lambda y: op.SparseMatmul("", torch.eye(3).double().to_sparse() * 2, y), (rand(3, 4),),
     lambda y: 2 * y),
    ("Sqrt", lambda x: op.Sqrt("", x), (A,), torch.sqrt),
    ("Squeeze", lambda x: op.Squeeze("", x, 1), (ROW,), lambda x: x.squeeze(1)),
    ("Stack", lambda x, y: op.Stack("", x, y, axis=1), (A, B), lambda x, y: torch.stack((x, y), 1)),
    ("Subtract", lambda x, y: op.Subtract("", x, y), (A, ROW), torch.subtract),
    ("Tanh", lambda x: op.Tanh("", x), (B,), torch.tanh),
    ("Tilize", lambda x: op.Tilize("", x), (A,), lambda x: x),
    ("Transpose", lambda x: op.Transpose("", x, 0, 2), (A,), lambda x: x.transpose(0, 2)),
    ("Transpose.z", lambda x: op.Transpose("", x, -3, -1, z_dim_slice=2), (rand(4, 3, 2),),
     lambda x: x.transpose(0, 2)),
    ("Unsqueeze", lambda x: op.Unsqueeze("", x, -1), (A,), lambda x: x[..., None]),
    ("VSlice", lambda x: op.VSlice("", x, 3), (A,), lambda x: x.reshape(6, 1, 4)),
    ("VStack", lambda x: op.VStack("", x), (A,), lambda x: x.reshape(1, 6, 4)),
    ("VStack.slices", lambda x: op.VStack("", x, 2), (rand(4, 2, 3),), lambda x: x.reshape(2, 4, 3)),
    ("Where", lambda x, y: op.Where("", (B > 0).double(), x, y), (A, B),
     lambda x, y: torch.where(B > 0, x, y)),
    ("loss.CrossEntropyLoss", lambda x: op.loss.CrossEntropyLoss("ce")(x, torch.eye(4).double()[:3]), (A,),
     lambda x: -(torch.eye(4).double()[:3] * x.log_softmax(-1)).sum(-1, True).mean(-2, True)),
    ("loss.L1Loss", lambda x, y: op.loss.L1Loss("l1")(x, y), (A, B),
     lambda x, y: (x - y).abs().mean(-1, True).mean(-2, True)),
    ("loss.L1Loss.sum", lambda x, y: op.loss.L1Loss("l1", "sum")(x, y), (A, B),
     lambda x, y: (x - y).abs().sum((-1, -2), True)),
    ("loss.L1Loss.none", lambda x, y: op.loss.L1Loss("l1", "none")(x, y), (A, B), lambda x, y: (x - y).abs()),
]  # fmt: skip
NO_GRADIENT = {"Argmax", "Equal", "NotEqual", "Greater", "Less", "GreaterEqual", "LessEqual", "LogicalAnd"}
NO_GRADIENT |= {"LogicalNot", "Quantize", "Requantize", "BudaRequantize", "Constant", "Dropout"}


@pytest.mark.sampled(4)
@pytest.mark.parametrize(("name", "run", "operands", "expected"), CASES, ids=[case[0] for case in CASES])
def test_values_and_gradients(
    name: str, run: Callable[..., Any], operands: tuple[Torch, ...], expected: Callable[..., Any]
) -> None:
    torch.testing.assert_close(run(*operands).value(), expected(*operands))
    leaves = tuple(operand.clone().requires_grad_() for operand in operands)
    assert torch.autograd.gradcheck(lambda *x: run(*x).value(), leaves, check_undefined_grad=False)


@pytest.mark.parametrize(("name", "run", "operands", "expected"), CASES, ids=[case[0] for case in CASES])
def test_shapes_without_values(
    name: str, run: Callable[..., Any], operands: tuple[Torch, ...], expected: Callable[..., Any]
) -> None:
    made = run(*(operand.to("meta") for operand in operands))
    assert not made.has_value()
    assert made.shape == tuple(expected(*operands).shape)
    with pytest.raises(PyBudaError, match="has a shape only"):
        made.value()


def test_every_op_has_a_case() -> None:
    tested = {name.split(".")[0] for name, *_ in CASES} | NO_GRADIENT
    ops = {name for name in op.__all__ if name[0].isupper() and name not in op.nn.__all__}
    assert ops - tested == set()
    assert {name for name in op.nn.__all__ if not name.endswith("Module")} - tested == {"Linear"}


def test_comparisons_have_the_first_operands_dtype() -> None:
    x, y = torch.tensor([1.0, 2.0, 3.0]), torch.tensor([2, 2, 2])
    expected = {
        "Equal": [0, 1, 0],
        "NotEqual": [1, 0, 1],
        "Greater": [0, 0, 1],
        "Less": [1, 0, 0],
        "GreaterEqual": [0, 1, 1],
        "LessEqual": [1, 1, 0],
        "LogicalAnd": [1, 1, 1],
    }
    for name, values in expected.items():
        made = getattr(op, name)("", x, y).value()
        assert (made.dtype, made.tolist()) == (torch.float32, values), name
    assert op.LogicalNot("", torch.tensor([0.0, 2.0])).value().tolist() == [1.0, 0.0]
    assert op.Heaviside("", torch.tensor([-1.0, 0.0, 1.0]), torch.tensor(0.5)).value().tolist() == [0, 0.5, 1]


def test_argmax_keeps_dimensions_and_dtype() -> None:
    x = torch.tensor([[1.0, 5.0], [7.0, 2.0]])
    assert op.Argmax("", x, 1).value().tolist() == [[1.0], [0.0]]
    assert op.Argmax("", x).value().tolist() == [[2.0]]


def test_constant_and_dropout() -> None:
    assert op.Constant("", constant=2.5).value().tolist() == [2.5]
    x = torch.ones(1000)
    first, second = (op.Dropout("", x, 0.25, seed=seed).value() for seed in (1, 1))
    assert torch.equal(first, second)
    assert set(first.tolist()) == {0.0, torch.tensor(1 / 0.75).item()}
    assert not torch.equal(first, op.Dropout("", x, 0.25, seed=2).value())
    with pytest.raises(PyBudaError, match="probability"):
        op.Dropout("", x, 1.5)


def test_documentation_decides_over_the_original() -> None:
    """Nothing is added to the operands of Log and Reciprocal."""
    assert op.Log("", torch.zeros(1)).value().item() == -torch.inf
    assert op.Reciprocal("", torch.zeros(1)).value().item() == torch.inf


def test_max_pool_returns_indices() -> None:
    values, indices = op.MaxPool2d("", IMAGE, 2, 2, 0, return_indices=True)
    expected = functional.max_pool2d(IMAGE, 2, 2, return_indices=True)
    assert torch.equal(values.value(), expected[0])
    assert torch.equal(indices.value().long(), expected[1])


def test_integers() -> None:
    a = torch.full((2, 100), 100, dtype=torch.int8)
    assert op.Matmul("", a, a.mT).value()[0, 0].item() == 1_000_000
    scale, zero = torch.tensor([0.5, 0.25]), torch.tensor([0.0, 10.0])
    x = torch.tensor([[1.0, -2.2], [1.0, 100.0]])
    quantized = op.Quantize("", x, scale, zero, 0).value()
    assert (quantized.dtype, quantized.tolist()) == (torch.int8, [[2, -4], [14, 127]])
    assert op.Quantize("", x, scale, zero, 0, torch.int32).value().tolist()[1][1] == 410
    back = op.Dequantize("", quantized, scale, zero, 0).value()
    assert back.tolist() == [[1.0, -2.0], [1.0, 29.25]]
    new = op.Requantize("", quantized, scale, zero, torch.tensor(1.0), torch.tensor(1.0), 0, 0, torch.int32)
    assert new.value().tolist() == [[2, -1], [2, 30]]
    sums = torch.tensor([[100, -1000]], dtype=torch.int32)
    assert op.BudaRequantize("", sums, torch.tensor([0.5, 0.5]), 1.0, 1).value().tolist() == [[51, -128]]


def test_out_dtype_of_transpose() -> None:
    assert op.Transpose("", torch.ones(2, 3), 0, 1, out_dtype=torch.float16).value().dtype is torch.float16
    assert op.Transpose("", torch.ones(2, 3).half(), 0, 1).value().dtype is torch.float16


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: op.HSlice("cut", A, 3), "hslice 'cut': the last dimension has size 4, which 3"),
        (lambda: op.Add("", A, rand(5)), r"add.*on shapes \(2, 3, 4\), \(5,\)"),
        (lambda: op.BinaryStack("", A, ROW, 0), "one shape"),
        (lambda: op.ReduceSum("", A, 4), "dim is 4"),
        (lambda: op.Index("", A, 0, 0, 5), "not within the 2 elements"),
        (lambda: op.Index("", A, 0, 0, 2, 0), "stride is 0"),
        (lambda: op.Select("", A, 0, (0, 0)), "does not fit"),
        (lambda: op.Pad("", A, (1, 2, 3)), "pad has 3 values"),
        (lambda: op.Pad("", A, (1, 2), "circular"), "none of 'constant'"),
        (lambda: op.Relu("", A, mode="mean"), "none of 'min', 'max'"),
        (lambda: op.Conv2d("", IMAGE, KERNEL, padding="valid"), "neither 'same' nor"),
        (lambda: op.Resize2d("", IMAGE, (2, 2), "lanczos"), "none of nearest_neighbor"),
        (lambda: op.Broadcast("", A, 0, 2), "only one can be broadcast"),
        (lambda: op.Squeeze("", A, 0), "only one can be removed"),
        (lambda: op.Identity("", A, "unsqueeze"), "unsqueeze_dim"),
        (lambda: op.loss.L1Loss("l1", "mean")(A, B), "none of 'avg', 'sum', 'none'"),
        (lambda: op.DRAMQueue("", A, num_entries=0), "num_entries is 0"),
        (lambda: op.Exp("", "text"), "not str 'text'"),
    ],
)
def test_errors_say_what_is_wrong(call: Callable[[], Any], words: str) -> None:
    with pytest.raises(PyBudaError, match=words):
        call()


def test_names_within_a_module() -> None:
    with trace.record() as ran:
        op.Exp("", A)
        op.Exp("mine", A)
        op.Exp("", A)
        with pytest.raises(PyBudaError, match="two ops of the module are called 'mine'"):
            op.Log("mine", A)
    assert list(ran.ops) == ["exp_0", "mine", "exp_1"]
    assert [ran.ops[name].op_type for name in ran.ops] == ["exp"] * 3


def test_operators_of_tensors() -> None:
    x, y = Tensor.create_from_torch(A), Tensor.create_from_torch(B)
    for made, expected in (
        (x + y, A + B),
        (x - y, A - B),
        (x * y, A * B),
        (x + 1, A + 1),
        (2 - x, 2 - A),
        (x * 3.0, A * 3),
        (A + y, A + B),
    ):
        assert isinstance(made, Tensor)
        torch.testing.assert_close(made.value(), expected)


def test_modules_that_own_parameters() -> None:
    x = torch.rand(2, 4, 6, 6)
    linear = op.nn.Linear("linear", 6, 3)
    made = linear(Tensor.create_from_torch(x)).value()
    assert linear.bias is not None
    torch.testing.assert_close(made, x @ linear.weights.value() + linear.bias.value())
    assert [p.get_name() for p in linear.get_parameters()] == ["linear.weights", "linear.bias"]
    assert len(op.nn.Linear("plain", 6, 3, bias=False).get_parameters()) == 1
    conv = op.nn.Conv2dModule("conv", 4, 5, 3, stride=2, padding=1)
    assert conv(x).shape == (2, 5, 3, 3)
    assert op.nn.ConvTranspose2dModule("up", 4, 5, 2, stride=2, padding=0, bias=False)(x).shape == (
        2,
        5,
        12,
        12,
    )
    assert torch.equal(
        op.nn.MaxPool2dModule("m", 2, stride=2, padding=0)(x).value(), functional.max_pool2d(x, 2)
    )
    assert torch.equal(op.nn.MaxPool1dModule("m", 2, stride=2)(x[0]).value(), functional.max_pool1d(x[0], 2))
    assert torch.equal(
        op.nn.AvgPool2dModule("a", 2, stride=2, padding=0)(x).value(), functional.avg_pool2d(x, 2)
    )
    sparse = op.nn.SparseMatmulModule("sparse", torch.eye(6).to_sparse())
    assert torch.equal(sparse(x[0, 0]).value(), x[0, 0])
    with pytest.raises(PyBudaError, match="padding_mode"):
        op.nn.Conv2dModule("c", 1, 1, 1, padding_mode="circular")
