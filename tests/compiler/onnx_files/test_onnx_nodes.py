"""ONNX's own models with inputs and outputs, as far as its package has them; branches."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch

from tests.compiler.onnx_files.models import parsed
from tests.compiler.onnx_files.nodes import check, tensor
from torch_loom.compiler import load_onnx
from torch_loom.errors import OnnxError

onnx = pytest.importorskip("onnx", reason="the package onnx is not installed: pip install onnx")

DATA = Path(onnx.__file__).parent / "backend" / "test" / "data"
# What they need is not read: see docs/conformance.md.
REFUSED = ("test_strnorm_model", "test_gradient_of_add")


def stored(path: Path, value_info: Any) -> Any:
    if value_info.type.HasField("sequence_type"):
        sequence = onnx.SequenceProto.FromString(path.read_bytes())
        return list(sequence.tensor_values)
    return onnx.TensorProto.FromString(path.read_bytes())


def data_sets(folder: Path, model: Any) -> Any:
    for one in sorted(folder.glob("test_data_set_*")):
        own = {initializer.name for initializer in model.graph.initializer}
        inputs = [info for info in model.graph.input if info.name not in own]
        yield (
            [stored(one / f"input_{number}.pb", info) for number, info in enumerate(inputs)],
            [stored(one / f"output_{number}.pb", info) for number, info in enumerate(model.graph.output)],
        )


@pytest.mark.parametrize(
    "group", [pytest.param("pytorch-converted", marks=pytest.mark.slow), "pytorch-operator", "simple"]
)
def test_models_of_the_package(group: str) -> None:
    passed, wrong = 0, []
    for folder in sorted((DATA / group).iterdir()):
        model = onnx.ModelProto.FromString((folder / "model.onnx").read_bytes())
        try:
            check(model, data_sets(folder, model), 1e-3, 1e-5)
            passed += 1
        except Exception as error:
            is_known = isinstance(error, OnnxError) and folder.name.startswith(REFUSED)
            wrong += [] if is_known else [f"{folder.name}: {type(error).__name__}: {str(error)[:200]}"]
    assert wrong == []
    assert passed >= {"pytorch-converted": 50, "pytorch-operator": 20, "simple": 10}[group]


def test_branches_and_loops_use_values_of_the_graph_around_them() -> None:
    graph = load_onnx(
        parsed(
            """
            double = Mul (x, w)
            y = If (flag) <
                then_branch = yes () => (float[2, 3] a) { a = Add (double, w) },
                else_branch = no () => (float[2, 3] b) { b = Neg (double) }
            >
            """,
            "(float[2, 3] x, bool flag) => (float[2, 3] y) <float[3] w = {1, 2, 3}>",
        )
    )
    x = torch.ones(2, 3)
    w = torch.tensor([1.0, 2.0, 3.0])
    for flag, wanted in ((True, x * w + w), (False, -x * w)):
        graph.zero_grad()
        made = graph(x, torch.tensor(flag))
        assert torch.equal(made, wanted)
        made.sum().backward()
        assert graph.w.grad.tolist() == ([4.0] * 3 if flag else [-2.0] * 3)


def test_values_of_tests_are_read_as_they_are() -> None:
    half = onnx.numpy_helper.from_array(torch.ones(2).half().numpy())
    assert tensor([half, None])[0].dtype is torch.float16
    with pytest.raises(OnnxError, match="INT4"):
        tensor(onnx.helper.make_tensor("x", onnx.TensorProto.INT4, [2], [1, 2]))
