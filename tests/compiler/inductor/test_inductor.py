"""torch.compile with its default backend: results, and what of it the tape hears."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch
from torch import nn
from torch._inductor.utils import run_and_get_code

from tests.device.tape_programs import listening
from torch_loom.errors import DeviceTypeError
from torch_loom.torch_version import minor_of

PROGRAMS = Path(__file__).parent / "programs" / "inductor"

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from tests.conftest import PythonRunner


LOOPS = re.compile(r"r'''\n(.*?)'''", re.DOTALL)  # in the code of a graph: the source of each kernel


@pytest.fixture(autouse=True)
def _one_process() -> Iterator[None]:
    from torch._inductor import config

    torch._dynamo.reset()
    # The header's own compilation takes longer than these kernels.
    with config.patch(compile_threads=1, cpp_cache_precompile_headers=False):
        yield


def kernel(body: str, *types: str) -> Callable[..., None]:
    from torch_loom.compiler.inductor.kernels import compile_kernel

    names = ", ".join(f"{kind} a{i}" for i, kind in enumerate(types))
    return compile_kernel(
        "cpp_test", types, f'#include <stdexcept>\nextern "C" void kernel({names}) {{ {body} }}'
    )


@pytest.mark.long
def test_a_kernel_is_one_command_on_the_current_stream() -> None:
    scale = kernel(
        "for (long i = 0; i < a3; ++i) a1[i] = a0[i] * 2 + a2;",
        "const float*",
        "float*",
        "const double",
        "const long",
    )
    x, y = torch.arange(6.0, device="loom"), torch.empty(6, device="loom")
    side = torch.loom.Stream()
    with listening() as tape, torch.loom.stream(side):
        scale(x, y, 0.5, 6)
    side.synchronize()
    assert y.tolist() == [0.5, 2.5, 4.5, 6.5, 8.5, 10.5]
    (told,) = tape.records
    assert (told["name"], told["stream"]) == ("cpp_test", side.stream_id)
    assert [operand[3] for operand in told["inputs"]] == [False, True]  # whether it is written

    graph = torch.loom.CUDAGraph()
    with torch.loom.graph(graph):
        scale(y, x, 0.0, 6)
    assert x.tolist() == [0, 1, 2, 3, 4, 5]
    graph.replay()
    assert x.tolist() == [1, 5, 9, 13, 17, 21]


@pytest.mark.long
def test_what_a_kernel_throws_is_raised_where_it_is_called() -> None:
    fails = kernel('throw std::runtime_error("index out of range");', "float*")
    with pytest.raises(RuntimeError, match=r"cpp_test.*index out of range"):
        fails(torch.empty(1, device="loom"))
    with pytest.raises(DeviceTypeError, match="cpp_test"):
        fails(torch.empty(1))


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("kernel_size", [1, 3, 4])
def test_fake_results_lie_in_memory_as_the_real_ones(layout: torch.memory_format, kernel_size: int) -> None:
    from torch._subclasses.fake_tensor import FakeTensorMode

    def results(x: torch.Tensor, weight: torch.Tensor) -> list[torch.Tensor]:
        y = torch.ops.aten.convolution(x, weight, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1)
        gradients = torch.ops.aten.convolution_backward(
            torch.ones_like(y), x, weight, None, [2, 2], [0, 0], [1, 1], False, [0, 0], 1, [True, True, False]
        )
        u, _, v = torch.linalg.svd(y, full_matrices=False)
        normal = torch.native_group_norm(y, None, None, 2, 8, y[0, 0].numel(), 2, 1e-5)
        # Since 2.14 PyTorch's fake kernel of group norm is contiguous, the CPU's own in the input's layout.
        is_known_to_differ = minor_of(torch.__version__) >= (2, 14) and layout is torch.channels_last
        return [y, *gradients[:2], u, v, *(normal[1:] if is_known_to_differ else normal)]

    x = torch.randn(2, 4, 12, 12, device="loom").to(memory_format=layout)
    weight = torch.randn(8, 4, kernel_size, kernel_size, device="loom")
    with FakeTensorMode() as mode:
        fakes = results(mode.from_tensor(x), mode.from_tensor(weight))
    for real, fake in zip(results(x, weight), fakes, strict=True):
        assert (fake.shape, fake.stride(), fake.device) == (real.shape, real.stride(), real.device)


def net() -> nn.Module:
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.LayerNorm(16))


@pytest.mark.slow
def test_forward_backward_and_dynamic_shapes() -> None:
    model, twin = net().to("loom"), net()
    compiled = torch.compile(lambda x: model(x).relu().sum(-1), dynamic=True, fullgraph=True)
    for rows in (3, 5, 9):
        x = torch.randn(rows, 8)
        with listening() as tape:
            loss = compiled(x.to("loom"))
        assert [record["name"] for record in tape.records if record["name"].startswith("cpp_fused")]
        expected = twin(x).relu().sum(-1)
        torch.testing.assert_close(loss.cpu(), expected, rtol=1e-5, atol=1e-5)
        loss.sum().backward()
        expected.sum().backward()
    for ours, theirs in zip(model.parameters(), twin.parameters(), strict=True):
        torch.testing.assert_close(ours.grad.cpu(), theirs.grad, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_calls_of_the_device_module_are_traced() -> None:
    @torch.compile(fullgraph=True)
    def program(x: torch.Tensor) -> torch.Tensor:
        if torch.loom.is_available() and torch.loom.is_initialized():
            x = x + torch.loom.current_device() + 1
        return x.to(f"loom:{torch.loom.current_device()}") * 2

    assert program(torch.ones(3, device="loom")).tolist() == [4, 4, 4]


@pytest.mark.slow
@pytest.mark.parametrize(
    "settings",
    [
        {"TORCH_LOOM_PROTECT": "1", "TORCH_LOOM_LAUNCH": "chaos"},
        {"TORCH_LOOM_DRIVER": "null", "TORCH_LOOM_CHIP": "atom"},
        {"TORCH_LOOM_DEVICE_NAME": "rbln"},
        {"TORCH_LOOM_DEVICE_NAME": "cuda"},
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_CHIP": "wormhole_b0"},  # of no capability of CUDA's
    ],
    ids=["protect-chaos", "null-lazy", "rbln", "cuda", "cuda-other-chip"],
)
def test_under_other_settings(warm_python: PythonRunner, settings: dict[str, str]) -> None:
    name = settings.get("TORCH_LOOM_DEVICE_NAME", "loom")
    shown = warm_python(
        PROGRAMS / "under_other_settings.py", settings, given=(name, settings.get("TORCH_LOOM_DRIVER", ""))
    )
    assert shown.stdout.strip() == f"torch.Size([8]) {name}:0"


class _Rules(nn.Module):
    """What Inductor has rules of its own for where it generates C++."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(96)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        normal = self.norm(x)
        joined = torch.cat([normal.sin(), x.cos() + 1], dim=-1)
        padded = nn.functional.pad(joined, (0, 3))
        several = sum(torch.sigmoid(padded + i) for i in range(10))
        return torch.softmax(several, -1).var(-1)


def loops(device: str) -> list[str]:
    torch.manual_seed(0)
    torch._dynamo.reset()
    x = torch.randn(4, 4, 96).to(device)
    with torch.no_grad(), torch._inductor.config.patch(force_disable_caches=True):
        _, codes = run_and_get_code(torch.compile(_Rules().to(device)), x)
    return [
        body.replace("// submitted to the device\n", "").strip() for body in LOOPS.findall("".join(codes))
    ]


@pytest.mark.long
def test_loops_are_those_of_the_cpu() -> None:
    """The same C++: variances in two steps, cat by copies, loops of equal size."""
    on_device, on_cpu = loops("loom"), loops("cpu")
    assert on_cpu
    assert on_device == on_cpu


@pytest.mark.long
@pytest.mark.parametrize("dtype", [torch.uint8, torch.bool, torch.float64])
def test_the_device_computes_with_scalars_of_the_host(dtype: torch.dtype) -> None:
    def program(one: torch.Tensor, other: torch.Tensor) -> tuple[torch.Tensor, ...]:
        return one + other, one * other, torch.where(other > 1, one, other)

    x, scalar = torch.rand(2, 3, device="loom"), torch.ones((), dtype=dtype)
    compiled = torch.compile(program)
    for operands in ((x, scalar), (scalar, x)):
        for result, expected in zip(compiled(*operands), program(*operands), strict=True):
            assert result.device == expected.device == x.device
            torch.testing.assert_close(result, expected, rtol=0, atol=0)
