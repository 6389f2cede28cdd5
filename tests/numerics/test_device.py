"""The ops on loom tensors: default stream, side streams, graphs, errors; the same bits as on the CPU."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.numerics.inputs import random
from torch_loom import numerics
from torch_loom.numerics import DataFormat, MathFidelity

B8 = DataFormat.Bfp8_b
FORMATS = [fmt for fmt in DataFormat if fmt is not DataFormat.Invalid]


def converted(x: Tensor, w: Tensor) -> Tensor:
    return numerics.quantize(x, B8)


def converted_in_place(x: Tensor, w: Tensor) -> Tensor:
    return numerics.quantize_(x.clone(), DataFormat.Bfp4_b)


def converted_out(x: Tensor, w: Tensor) -> Tensor:
    return numerics.quantize(x.transpose(0, 1), B8, out=torch.empty_like(x.transpose(0, 1)))


def packed(x: Tensor, w: Tensor) -> Tensor:
    return numerics.pack(x, B8)


def unpacked(x: Tensor, w: Tensor) -> Tensor:
    return numerics.unpack(numerics.pack(x, B8), B8, x.shape)


def multiplied(x: Tensor, w: Tensor) -> Tensor:
    return numerics.matmul(x, w, fidelity=MathFidelity.HiFi3, accumulate=DataFormat.Float16_b, out_format=B8)


def multiplied_as_on_silicon(x: Tensor, w: Tensor) -> Tensor:
    return numerics.matmul(x, w, fidelity=MathFidelity.HiFi2, accumulate=DataFormat.Float16_b, mode="silicon")


def convolved(x: Tensor, w: Tensor) -> Tensor:
    return numerics.conv2d(x.view(1, 2, 20, 24), w[:, :18].reshape(-1, 2, 3, 3)[:6], padding=1)


PROGRAMS = [
    converted,
    converted_in_place,
    converted_out,
    packed,
    unpacked,
    multiplied,
    multiplied_as_on_silicon,
    convolved,
]
each_program = pytest.mark.parametrize("program", PROGRAMS, ids=lambda program: program.__name__)
Program = Callable[[Tensor, Tensor], Tensor]


def inputs() -> tuple[Tensor, Tensor]:
    return random(40, 24), random(24, 30, seed=4)


@pytest.mark.parametrize("fmt", FORMATS, ids=lambda fmt: fmt.name)
def test_formats_on_the_device(fmt: DataFormat) -> None:
    x = random(33, 50)
    on_device = x.to("loom")
    got = numerics.quantize(on_device, fmt)
    assert got.device.type == "loom"
    assert torch.equal(got.cpu(), numerics.quantize(x, fmt))
    assert torch.equal(numerics.pack(on_device, fmt).cpu(), numerics.pack(x, fmt))


@each_program
def test_on_the_default_stream(program: Program) -> None:
    x, w = inputs()
    assert torch.equal(program(x.to("loom"), w.to("loom")).cpu(), program(x, w))


@each_program
def test_on_a_side_stream(program: Program) -> None:
    x, w = inputs()
    wanted = program(x, w)
    on_device = x.to("loom"), w.to("loom")
    stream = torch.loom.Stream()  # type: ignore[attr-defined]
    stream.wait_stream(torch.loom.current_stream())  # type: ignore[attr-defined]
    with torch.loom.stream(stream):  # type: ignore[attr-defined]
        # The first call learns what the op returns; the others are queued.
        results = [program(*on_device) for _ in range(3)]
    stream.synchronize()
    assert all(torch.equal(result.cpu(), wanted) for result in results)


@each_program
def test_in_a_graph(program: Program) -> None:
    x, w = inputs()
    static = x.to("loom"), w.to("loom")
    graph = torch.loom.CUDAGraph()  # type: ignore[attr-defined]
    with torch.loom.graph(graph):  # type: ignore[attr-defined]
        result = program(*static)
    for seed in (5, 6):
        static[0].copy_(random(40, 24, seed=seed))
        graph.replay()
        assert torch.equal(result.cpu(), program(random(40, 24, seed=seed), w))


def test_a_queued_op_does_not_hold_the_caller_up() -> None:
    # Ops that are not queued run in the caller's thread after the stream's work, which the gate holds.
    from tests.gate import installed

    x, w = (each.to("loom") for each in inputs())
    stream = torch.loom.Stream()  # type: ignore[attr-defined]
    stream.wait_stream(torch.loom.current_stream())  # type: ignore[attr-defined]
    with torch.loom.stream(stream):  # type: ignore[attr-defined]
        for _ in range(2):
            multiplied(x, w)
        stream.synchronize()
        with installed() as gate:
            gate.hold(stream)
            result = multiplied(x, w)
            assert not stream.query()
            gate.open()
    stream.synchronize()
    assert torch.equal(result.cpu(), multiplied(*inputs()))


def test_gradients_on_the_device() -> None:
    x, w = inputs()
    grads = []
    for device in ("cpu", "loom"):
        a, b = (each.detach().clone().to(device).requires_grad_() for each in (x, w))
        numerics.quantize(multiplied(a, b), DataFormat.Bfp4_b).square().sum().backward()
        assert a.grad is not None
        assert b.grad is not None
        grads.append((a.grad.cpu(), b.grad.cpu()))
    assert all(torch.equal(left, right) for left, right in zip(*grads, strict=True))


def test_counts_on_the_device() -> None:
    x = torch.tensor([1.0, float("inf"), float("nan")], device="loom")
    assert numerics.nonfinite(numerics.quantize(x, B8)) == (1, 1)


def test_devices_are_not_mixed() -> None:
    x, w = inputs()
    with pytest.raises(RuntimeError, match="same device"):
        numerics.matmul(x.to("loom"), w)


def test_emulation_on_the_device() -> None:
    torch.manual_seed(0)
    model = torch.nn.Sequential(
        torch.nn.Linear(24, 32), torch.nn.GELU(), torch.nn.LayerNorm(32), torch.nn.Linear(32, 4)
    )
    x = inputs()[0]
    wanted = numerics.emulate(model, B8)(x)
    wanted.square().sum().backward()
    grads = [parameter.grad.clone() for parameter in model.parameters()]  # type: ignore[union-attr]
    model.zero_grad()
    model.to("loom")
    got = numerics.emulate(model, B8)(x.to("loom"))
    assert torch.equal(got.cpu(), wanted)
    got.square().sum().backward()
    assert all(torch.equal(p.grad.cpu(), g) for p, g in zip(model.parameters(), grads, strict=True))  # type: ignore[union-attr]
