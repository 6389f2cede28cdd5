"""Each pass alone, on a graph of a few ops: what it changes, and what it leaves."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, fx, nn
from torch.fx.experimental.proxy_tensor import make_fx

import torch_loom
from torch_loom import chips, numerics
from torch_loom.compiler.ir import computes, facts, op_name
from torch_loom.compiler.options import Options
from torch_loom.compiler.passes import RUN_PASSES, Context, Pass, run
from torch_loom.compiler.passes.canonical import annotate_sources, canonicalise
from torch_loom.compiler.passes.consteval import evaluate_constants
from torch_loom.compiler.passes.formats import infer_formats, quantise
from torch_loom.compiler.passes.fuse import fuse
from torch_loom.compiler.passes.hosts import mark_host_ops
from torch_loom.compiler.passes.softmax import plain_softmax
from torch_loom.errors import HostOpError, IllegalGraphError

X, W = torch.ones(4, 8), torch.full((8, 8), 0.5)


def traced(function: Callable[..., Any], *inputs: Tensor) -> fx.GraphModule:
    """Return the graph of a function, of ATen's ops, with what passes need to know of each result."""
    return make_fx(function, tracing_mode="fake")(*inputs)


def context(chip: str = "wormhole_b0", **options: Any) -> Context:
    return Context(chips.load(chip), Options().but(**options))


def ops(graph: fx.GraphModule) -> list[str]:
    return [op_name(node).removeprefix("aten::") for node in graph.graph.nodes if computes(node)]


def node_of(graph: fx.GraphModule, name: str) -> fx.Node:
    return next(node for node in graph.graph.nodes if op_name(node).startswith(f"aten::{name}"))


def test_sources() -> None:
    graph = traced(lambda x: x.relu(), X)
    node_of(graph, "relu").meta["stack_trace"] = 'File "net.py", line 7, in forward\n    return x.relu()'
    annotate_sources(graph, context())
    assert "net.py:7" in facts(node_of(graph, "relu")).source


def test_canonicalise() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        x.sin()  # unused
        same = torch.ops.aten._to_copy(x, dtype=torch.float32)  # changes nothing
        first, second = same.exp(), same.exp()  # equal
        draws = [torch.rand_like(x) for _ in range(2)]  # each advances the generator
        return first + second, draws[0] + draws[1]

    graph = canonicalise(traced(function, X), context())
    assert sorted(ops(graph)) == ["add.Tensor", "add.Tensor", "exp", "rand_like", "rand_like"]


def test_host_ops() -> None:
    graph = traced(lambda x: x.exp().relu(), X)
    noted = context("atom")
    mark_host_ops(graph, noted)
    reasons = {op_name(node): facts(node).host_reason for node in graph.graph.nodes if computes(node)}
    assert "native_ops of atom" in reasons["aten::exp"]
    assert len(noted.notes) == sum(bool(reason) for reason in reasons.values())
    mark_host_ops(graph, context())
    assert not facts(node_of(graph, "exp")).host_reason
    with pytest.raises(HostOpError, match="exp"):
        mark_host_ops(graph, context("atom", host_ops="error"))


def test_softmax() -> None:
    graph = traced(lambda x: torch.softmax(x, -1), X)
    assert ops(plain_softmax(graph, context())) == ["_softmax"]
    assert ops(plain_softmax(graph, context(enable_stable_softmax=False))) == [
        "exp",
        "sum.dim_IntList",
        "div.Tensor",
    ]
    torch.testing.assert_close(graph(X), X.softmax(-1))


def test_fuse() -> None:
    def function(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        product = x @ w
        shared = x.exp()
        return (product + 1).relu(), shared.neg() + shared.sin()

    graph = fuse(traced(function, X, W), context())
    assert facts(node_of(graph, "add")).fused_into == "mm"
    assert facts(node_of(graph, "relu")).fused_into == "mm"
    assert facts(node_of(graph, "neg")).fused_into == "", "its operand has another reader"
    plain = fuse(traced(function, X, W), context(enable_auto_fusing=False))
    assert not any(facts(node).fused_into for node in plain.graph.nodes)


@pytest.mark.parametrize(
    ("pads", "value", "kernels"), [((1, 1, 1, 1), 0.0, 1), ((0, 1, 0, 1), 0.0, 1), ((1, 1, 1, 1), 2.0, 2)]
)
def test_zeros_around_an_image_are_its_convolutions(
    pads: tuple[int, ...], value: float, kernels: int
) -> None:
    class Padded(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.conv = nn.Conv2d(32, 32, 3, bias=False)

        def forward(self, x: Tensor) -> Tensor:
            return self.conv(nn.functional.pad(x, pads, value=value))

    net, x = Padded().eval(), torch.rand(2, 32, 8, 8)
    for how in ({"default_df_override": "Bfp8_b"}, {}):
        made = torch_loom.compile(net, (x,), chip="wormhole_b0", cache=False, **how)
        planned = [op["type"] for epoch in made.plan["epochs"] for op in epoch["ops"]]
        assert len(planned) == kernels
        torch.testing.assert_close(made(x).cpu(), net(x), atol=0.1, rtol=0.1)


def test_zeros_that_others_read_too_are_a_kernel() -> None:
    def net(x: Tensor, w: Tensor) -> tuple[Tensor, Tensor]:
        wide = nn.functional.pad(x, (1, 1, 1, 1))
        return nn.functional.conv2d(wide, w), wide

    graph = traced(net, torch.ones(1, 2, 4, 4), torch.ones(2, 2, 3, 3))
    fuse(graph, context())
    (pad,) = (node for node in graph.graph.nodes if "pad" in op_name(node))
    assert not facts(pad).tags.get("operand")


def test_formats() -> None:
    graph = infer_formats(traced(lambda x, w: (x @ w).relu(), X, W), context(math_fidelity="HiFi2"))
    own = facts(node_of(graph, "mm"))
    assert (own.format, own.fidelity) == ("Float32", "HiFi2")
    infer_formats(graph, context(default_df_override="Bfp8_b"))
    assert facts(node_of(graph, "relu")).format == "Bfp8_b"


def test_quantise() -> None:
    def made(**options: Any) -> fx.GraphModule:
        graph = infer_formats(traced(lambda x, w: x @ w, X, W), context(**options))
        return quantise(graph, context(**options))

    assert ops(made(default_df_override="Bfp8_b")) == ["mm"]
    graph = made(default_df_override="Bfp8_b", numerics="formats")
    assert all(name.startswith("loom_numerics::") for name in ops(graph)), ops(graph)
    third = torch.full((8, 8), 1 / 3)
    assert not torch.equal(graph(X, third), X @ third)


_PRODUCTS: dict[str, Callable[..., Tensor]] = {
    "mm": lambda x, w, b: x @ w,
    "bmm": lambda x, w, b: torch.bmm(x[None], w[None]),
    "mv": lambda x, w, b: torch.mv(x, w[0]),
    "dot": lambda x, w, b: torch.dot(x[0], w[0]),
    "addmm": lambda x, w, b: torch.addmm(b, x, w, alpha=2, beta=0.5),
    "addmv": lambda x, w, b: torch.addmv(b, x, w[0]),
    "baddbmm": lambda x, w, b: torch.baddbmm(b, x[None], w[None], alpha=3),
    "beta 0": lambda x, w, b: torch.addmm(b * float("nan"), x, w, beta=0),
}


@pytest.mark.parametrize("name", list(_PRODUCTS))
def test_every_product_has_a_fidelity(name: str) -> None:
    torch.manual_seed(0)
    given = torch.randn(8, 8), torch.randn(8, 8), torch.randn(8)

    def made(fidelity: str) -> Tensor:
        known = context(math_fidelity=fidelity, default_df_override="Float16_b", numerics="formats")
        graph = quantise(infer_formats(traced(_PRODUCTS[name], *given), known), known)
        result: Tensor = graph(*given)
        return result

    exact = _PRODUCTS[name](*given)
    torch.testing.assert_close(made("HiFi4"), exact, rtol=0.02, atol=0.05)
    assert not torch.equal(made("LoFi"), made("HiFi4"))


@pytest.mark.parametrize(("fmt", "number"), [("Float16_b", 1), ("Bfp8_b", 2)])
def test_a_table_is_rounded_where_it_is_picked_from(fmt: str, number: int) -> None:
    options = {"default_df_override": fmt, "numerics": "formats"}
    table, words = torch.randn(64, 32), torch.randint(0, 64, (4,))
    graph = traced(lambda words, table: torch.nn.functional.embedding(words, table), words, table)
    graph = quantise(infer_formats(graph, context(**options)), context(**options))
    assert sum("quantize" in name for name in ops(graph)) == number  # blocks are those of the table
    whole = torch.ops.loom_numerics.quantize(table, numerics.DataFormat[fmt].value)
    assert torch.equal(graph(words, table), whole[words])


def test_consteval() -> None:
    def function(x: Tensor, w: Tensor) -> Tensor:
        return x @ (w * 2).exp()

    def made(**options: Any) -> tuple[fx.GraphModule, Context]:
        graph, known = traced(function, X, W), context(**options)
        known.parameters["w_1"] = W
        return evaluate_constants(graph, known), known

    graph, known = made()
    assert ops(graph) == ["mm"]
    (constant,) = known.folded[1]
    assert torch.equal(known.parameters[constant], (W * 2).exp())
    assert ops(made(enable_consteval=False)[0]) == ["mul.Tensor", "exp", "mm"]


def test_consteval_keeps_what_is_read() -> None:
    """A constant that only views of other constants read goes with them; a view that is read has its own."""

    def made(function: Callable[[Tensor, Tensor], Any]) -> tuple[list[str], list[Tensor]]:
        graph, known = traced(function, X, W), context()
        known.parameters["w_1"] = W
        evaluate_constants(graph, known)
        return ops(graph), [known.parameters[name] for name in known.folded[1]]

    found, constants = made(lambda x, w: x @ (w * 2).t().relu())
    assert found == ["mm"]
    assert len(constants) == 1
    assert torch.equal(constants[0], (W * 2).t().relu())
    found, constants = made(lambda x, w: (x @ (w * 2).t(), x @ (w * 2).t().relu()))
    assert found == ["mm", "mm"]
    assert len(constants) == 2


def test_consteval_of_a_module_elsewhere() -> None:
    """Weights of the host are rounded on the device where they are kept, and stay as they are on the host."""
    torch.manual_seed(0)
    net, x = nn.Linear(1024, 4096, bias=False), torch.randn(2, 1024)
    before = net.weight.detach().clone()
    torch.loom.reset_peak_memory_stats()
    begun = torch.loom.memory_allocated()
    options: dict[str, Any] = {"default_df_override": "Float16_b", "numerics": "formats", "plans_later": True}
    made = torch_loom.compile(net, (x.to("loom"),), chip="wormhole_b0", cache=False, **options)
    taken = torch.loom.max_memory_allocated() - begun
    assert before.nbytes <= taken < 1.1 * before.nbytes
    assert torch.equal(net.weight, before)
    again = torch_loom.compile(net.to("loom"), (x.to("loom"),), chip="wormhole_b0", cache=False, **options)
    assert torch.equal(made(x.to("loom")), again(x.to("loom")))
    assert torch.equal(net.weight.cpu(), before)


class _Products(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.conv, self.linear = nn.Conv2d(3, 8, 3, padding=1), nn.Linear(8, 16)
        self.weight = nn.Parameter(torch.randn(16, 4))

    def forward(self, x: Tensor) -> Tensor:
        pixels = self.conv(x).flatten(2).transpose(1, 2)
        return self.linear(pixels).relu() @ self.weight


@pytest.mark.long
@pytest.mark.parametrize("fidelity", ["LoFi", "HiFi2", "HiFi3", "HiFi4"])
@pytest.mark.parametrize("given", ["Float16_b", "Bfp8_b", "Float32"])
@pytest.mark.parametrize("accumulate", ["Float16_b", "Float32"])
def test_split(fidelity: str, given: str, accumulate: str) -> None:
    """A program for runs has the bits and the plan of one for an image, and follows its parameters."""
    torch.manual_seed(0)
    net, x = _Products().to("loom").eval(), torch.randn(2, 3, 8, 8, device="loom")
    formats = {"default_df_override": given, "accumulate_df": accumulate, "numerics": "formats"}
    options: dict[str, Any] = {"math_fidelity": fidelity, "chip": "wormhole_b0", "cache": False, **formats}
    kept = torch_loom.compile(net, (x,), **options)
    made = torch_loom.compile(net, (x,), plans_later=True, **options)
    assert torch.equal(made(x), kept(x))
    assert made.plan["epochs"] == kept.plan["epochs"]
    masks = [call for call in made.program.calls if call.op == "loom_numerics::operand"]
    assert masks or fidelity != "LoFi"
    with torch.no_grad():
        net.linear.weight.mul_(-1.01)
    assert torch.equal(made(x), kept(x))


def test_the_runner_checks_and_counts() -> None:
    def breaks(graph: fx.GraphModule, context: Context) -> fx.GraphModule:
        del node_of(graph, "relu").meta["val"]
        return graph

    checked = context()
    checked.checks = True
    passes = (Pass("canonicalise", canonicalise), Pass("breaks", breaks))
    with pytest.raises(IllegalGraphError, match=r"after the pass 'breaks': relu"):
        run(traced(lambda x: (x * 1).relu(), X), passes, checked)
    assert [(each.name, each.ops_before) for each in checked.records] == [("canonicalise", 2), ("breaks", 2)]
    exact = context()
    run(traced(lambda x: x.relu(), X), (Pass("breaks", breaks, changes_numbers=True),), exact)
    assert exact.records == []


def test_every_pass_has_a_test() -> None:
    assert [each.name for each in RUN_PASSES if f"test_{each.name.replace(' ', '_')}" not in globals()] == []
