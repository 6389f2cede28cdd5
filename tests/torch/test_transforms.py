"""Function transforms, tracing, scripting and the compiler's front end."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest
import torch
from torch import Tensor, nn
from torch.func import functional_call, grad, hessian, jacfwd, jacrev, vmap
from torch.overrides import TorchFunctionMode
from torch.utils._python_dispatch import TorchDispatchMode

if TYPE_CHECKING:
    from pathlib import Path


@pytest.fixture(autouse=True)
def without_deprecation_warnings() -> Iterator[None]:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        yield


def cubes(x: Tensor) -> Tensor:
    return (x**3).sum()


@pytest.mark.parametrize(
    "transform",
    [
        grad(cubes),
        hessian(cubes),
        jacrev(torch.sin),
        jacfwd(torch.sin),
        vmap(lambda row: row.outer(row)[0]),
        vmap(grad(cubes)),
        vmap(lambda row: row * 2, in_dims=1, out_dims=1),
    ],
    ids=["grad", "hessian", "jacrev", "jacfwd", "vmap", "vmap of grad", "dims"],
)
def test_functional_transforms(transform: Callable[[Tensor], Tensor]) -> None:
    x = torch.arange(6.0).view(2, 3)
    got = transform(x.to("loom"))
    assert got.device.type == "loom"
    torch.testing.assert_close(got.cpu(), transform(x))


def test_vmap_draws_from_the_device() -> None:
    rows = torch.zeros(3, 8, device="loom")
    before = torch.get_rng_state()
    different = vmap(torch.rand_like, randomness="different")(rows)
    same = vmap(torch.rand_like, randomness="same")(rows)
    assert not torch.equal(different[0], different[1])
    assert torch.equal(same[0], same[1])
    assert torch.equal(torch.get_rng_state(), before)


def test_functional_call_and_per_sample_gradients() -> None:
    module, x = nn.Linear(3, 1, device="loom"), torch.rand(4, 3, device="loom")
    parameters = {name: p.detach() for name, p in module.named_parameters()}
    gradients = vmap(grad(lambda p, row: functional_call(module, p, row).sum()), (None, 0))(parameters, x)
    torch.testing.assert_close(gradients["weight"][:, 0], x)


@pytest.mark.parametrize("kind", ["trace", "script"])
def test_jit(kind: str) -> None:
    module = nn.Sequential(nn.Linear(3, 4), nn.ReLU(), nn.Linear(4, 2)).to("loom")
    x = torch.rand(2, 3, device="loom")
    compiled = torch.jit.trace(module, x) if kind == "trace" else torch.jit.script(module)
    for _ in range(3):  # the profiling executor changes the graph between runs
        got = compiled(x)
        got.sum().backward()
    assert got.is_loom
    torch.testing.assert_close(got, module(x))


def test_scripted_control_flow_and_factories() -> None:
    @torch.jit.script
    def function(x: Tensor, n: int) -> Tensor:
        total = torch.zeros(2, device=x.device)
        for i in range(n):
            if bool(total.sum() < 10):
                total = total + x * i
        return total

    assert function(torch.ones(2, device="loom"), 9).tolist() == [6, 6]


class _Indexing(nn.Module):
    """What TorchScript makes of indices: lists whose type is not the one that eager calls name."""

    def forward(
        self, x: Tensor, i: Tensor, mask: Tensor
    ) -> tuple[Tensor, Tensor, Tensor, Tensor, Tensor, Tensor]:
        written, masked = x.clone(), x.clone()
        # Numbers would be constants of the traced graph, on the device; TorchScript frees no graph.
        written[i] = x.new_ones(())
        written[0, i] = x[0, i] * 2
        masked[mask] = x.new_full((), -1.0)
        return x[i], x[mask], x[:, i], x[i, None], written, masked


@pytest.mark.parametrize("kind", ["trace", "script", "loaded"])
@pytest.mark.parametrize("side", [False, True])
def test_jit_indexes(kind: str, side: bool, tmp_path: Path) -> None:
    host = torch.arange(12.0).view(3, 4), torch.tensor([2, 0]), torch.arange(12).view(3, 4) % 5 == 0
    there = tuple(x.to("loom") for x in host)
    module = torch.jit.trace(_Indexing(), there) if kind == "trace" else torch.jit.script(_Indexing())
    if kind == "loaded":
        torch.jit.save(module, tmp_path / "module.pt")
        module = torch.jit.load(tmp_path / "module.pt")
    for _ in range(3):
        with torch.loom.stream(torch.loom.Stream() if side else torch.loom.default_stream()):
            got = module(*there)
            torch.loom.synchronize()
        for ours, theirs in zip(got, _Indexing()(*host), strict=True):
            assert torch.equal(ours.cpu(), theirs)


@pytest.mark.long
def test_compile_aot_eager_trains() -> None:
    torch.manual_seed(0)
    module = nn.Sequential(nn.Linear(3, 4), nn.GELU(), nn.LayerNorm(4)).to("loom")
    x = torch.rand(2, 3, device="loom")
    module(x).square().sum().backward()
    expected = [p.grad.clone() for p in module.parameters() if p.grad is not None]
    module.zero_grad()
    compiled = torch.compile(module, backend="aot_eager", fullgraph=True)
    compiled(x).square().sum().backward()
    torch.testing.assert_close([p.grad for p in module.parameters()], expected)


@pytest.mark.long
def test_compile_aot_eager_of_writes_and_views() -> None:
    def function(x: Tensor) -> tuple[Tensor, Tensor]:
        x[1:].mul_(2)
        return x.T, torch.arange(3, device=x.device) + x[0]

    x, y = torch.ones(2, 3, device="loom"), torch.ones(2, 3, device="loom")
    got = torch.compile(function, backend="aot_eager", fullgraph=True)(x)
    torch.testing.assert_close(got, function(y))
    assert torch.equal(x, y)
    assert got[0].data_ptr() == x.data_ptr()


def test_modes_see_every_op() -> None:
    class Seen(TorchDispatchMode):
        def __torch_dispatch__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            names.append(str(func))
            return func(*args, **(kwargs or {}))

    class Doubled(TorchFunctionMode):
        def __torch_function__(self, func, types, args=(), kwargs=None):  # type: ignore[no-untyped-def]
            result = func(*args, **(kwargs or {}))
            return result * 2 if func is torch.add else result

    names: list[str] = []
    with Seen():
        x = torch.ones(2, device="loom").add(1).T
    assert names == ["aten.ones.default", "aten.add.Tensor", "aten.numpy_T.default"][:2] + names[2:]
    assert len(names) >= 3
    with Doubled():
        assert torch.add(x, 1).tolist() == [6, 6]


def test_a_subclass_stays_one() -> None:
    class Named(Tensor):
        pass

    x = torch.ones(2, device="loom").as_subclass(Named)
    for y in (x + 1, x[:1], x.to("loom:1"), x.cpu(), torch.add(torch.ones(2, device="loom"), x)):
        assert type(y) is Named
    assert (x + 1).tolist() == [2, 2]


def test_a_custom_op_without_a_kernel_for_the_device() -> None:
    @torch.library.custom_op("loom_tests::only_cpu", mutates_args=(), device_types="cpu")
    def only_cpu(x: Tensor) -> Tensor:
        return x + 1

    assert only_cpu(torch.ones(1)).tolist() == [2]
    with pytest.raises(NotImplementedError, match="loom_tests::only_cpu"):
        only_cpu(torch.ones(1, device="loom"))
    only_cpu.register_kernel("loom")(lambda x: x + 2)
    assert only_cpu(torch.ones(1, device="loom")).tolist() == [3]
