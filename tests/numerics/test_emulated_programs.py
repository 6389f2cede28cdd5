"""Emulation in programs that copy, nest, checkpoint and run in threads: never another number, silently."""

from __future__ import annotations

import copy
import gc
import io
import pickle
import signal
import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.nn.modules import module as modules
from torch.optim import optimizer as optimizers
from torch.utils.checkpoint import checkpoint

from tests.numerics.inputs import random
from tests.numerics.models import transformer
from torch_loom import numerics
from torch_loom.errors import FormatError
from torch_loom.numerics import DataFormat, MathFidelity, emulate

B8, B4, B2 = DataFormat.Bfp8_b, DataFormat.Bfp4_b, DataFormat.Bfp2_b
F16 = DataFormat.Float16_b


@pytest.fixture(autouse=True)
def one_thread() -> Iterator[None]:
    """Small ops on several threads wait for one another where others use the processors."""
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)


def saved(model: nn.Module) -> nn.Module:
    file = io.BytesIO()
    torch.save(model, file)
    file.seek(0)
    loaded: nn.Module = torch.load(file, weights_only=False)
    return loaded


@pytest.mark.parametrize("copied", [copy.deepcopy, lambda m: pickle.loads(pickle.dumps(m)), saved])
def test_copies_are_emulated_alike_and_apart(copied: Callable[[nn.Module], nn.Module]) -> None:
    model, x = emulate(transformer(), B8, overrides={"layers.0": B4, "layers.1:gelu": B2}), random(2, 4, 32)
    with torch.no_grad():
        wanted = model(x)
        twin = copied(model)
        assert torch.equal(twin(x), wanted)
        for parameter in model.parameters():
            parameter.zero_()
        assert torch.equal(twin(x), wanted)
    twin.load_state_dict(model.state_dict())
    assert torch.equal(twin(x), model(x))
    twin.detach_hooks()  # type: ignore[operator]
    assert not any(part._forward_pre_hooks for part in twin.modules())
    assert any(part._forward_pre_hooks for part in model.modules())


@pytest.mark.parametrize("inner", [F16, B2, None])
def test_of_nested_emulations_the_innermost_decides(inner: DataFormat | None) -> None:
    x, w = random(4, 32), random(32, 32)

    def program() -> list[Tensor]:
        y = torch.relu(x * 1.3 + x) @ w
        y += x
        return [y, functional.softmax(y, -1), torch.mul(x, y, out=torch.empty(4, 32))]

    def run() -> list[Tensor]:
        with emulate(inner or B8, fidelity=MathFidelity.HiFi3, overrides={} if inner else {"*": None}):
            return program()

    alone = run()
    with emulate(B4) as outer, emulate(DataFormat.Lf8 if inner is None else B4), outer:
        nested = run()
        after = torch.exp(x)
    assert all(torch.equal(a, b) for a, b in zip(alone, nested, strict=True))
    with emulate(B4):
        assert torch.equal(after, torch.exp(x))
    again = emulate(B8, fidelity=MathFidelity.HiFi3)
    with again, again:
        twice = program()
    with again:
        assert all(torch.equal(a, b) for a, b in zip(twice, program(), strict=True))


def test_an_emulated_part_of_an_emulated_model_keeps_its_format() -> None:
    x, part = random(4, 32), emulate(nn.Sequential(nn.GELU(), nn.LayerNorm(32), nn.GELU()), F16)
    wanted = part(x)
    assert torch.equal(emulate(nn.Sequential(part), B2)(x), wanted)
    with emulate(B2):
        assert torch.equal(part(x), wanted)


class Checkpointed(nn.Module):
    def __init__(self, reentrant: bool | None) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.inside = nn.Linear(32, 32)
        self.after = nn.Linear(32, 32)
        self.reentrant = reentrant

    def part(self, x: Tensor) -> Tensor:
        return torch.sin(self.after(functional.gelu(self.inside(x) * 1.1)))

    def forward(self, x: Tensor) -> Tensor:
        if self.reentrant is None:
            return self.part(x)
        result: Tensor = checkpoint(self.part, x, use_reentrant=self.reentrant)
        return result


@pytest.mark.parametrize("device", ["cpu", "loom"])
@pytest.mark.parametrize("style", ["module", "context", "context around backward", "autograd.backward"])
@pytest.mark.parametrize("reentrant", [False, True])
def test_checkpoints_are_recomputed_under_the_emulation(reentrant: bool, style: str, device: str) -> None:
    overrides: dict[str, Any] = {"inside": B2, "after:linear": MathFidelity.LoFi}
    gradients = []
    for kind in (None, reentrant):
        model = Checkpointed(kind).to(device)
        x = random(4, 32).to(device).requires_grad_()
        if style == "module":
            emulate(model, B4, overrides=overrides)(x).sum().backward()
        else:
            with emulate(B4, overrides=overrides):
                loss = model(x).sum()
                if style == "context around backward":
                    loss.backward()
                elif style == "autograd.backward":
                    torch.autograd.backward(loss)
            if style == "context":
                loss.backward()
        gradients.append([x.grad, *(parameter.grad for parameter in model.parameters())])
    assert all(torch.equal(a, b) for a, b in zip(*gradients, strict=True))  # type: ignore[arg-type]


def in_threads(count: int, work: Callable[[], Any]) -> None:
    failures: list[BaseException] = []

    def run() -> None:
        try:
            work()
        except BaseException as error:
            failures.append(error)

    threads = [threading.Thread(target=run) for _ in range(count)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    if failures:
        raise failures[0]


def test_threads_share_a_wrapped_module_and_no_context() -> None:
    model, x = nn.Sequential(nn.Linear(32, 32), nn.Linear(32, 32)), random(4, 32)
    both = threading.Barrier(2, timeout=30)

    class Meeting(nn.Module):
        """Two threads are in it at a time."""

        def forward(self, x: Tensor) -> Tensor:
            both.wait()
            y = x * 1.01
            both.wait()
            return y

    wrapped = emulate(nn.Sequential(*model, Meeting(), nn.GELU()), B8, overrides={"0": B2, "2": B4})
    alone = emulate(nn.Sequential(*model, nn.Hardtanh(-9, 9), nn.GELU()), B8, overrides={"0": B2})
    results: list[Tensor] = []
    in_threads(2, lambda: results.append(wrapped(x)))
    assert torch.equal(*results)
    assert not torch.equal(results[0], alone(x))

    exact = model(x)
    with emulate(B8, overrides={"0": B2}):
        emulated = model(x)

        def elsewhere() -> None:
            # In the same context object's time, but in no context of this thread's.
            assert torch.equal(model(x), exact)

        for part in model:
            part.register_forward_hook(lambda *_: in_threads(1, elsewhere) if _main() else None)
        assert torch.equal(model(x), emulated)
    assert not torch.equal(emulated, exact)


def _main() -> bool:
    return threading.current_thread() is threading.main_thread()


def test_a_step_in_another_thread_is_none_of_this_one() -> None:
    """Hooks of optimizers are the process's: a thread that steps must not hide the step of another."""
    parameter, other = nn.Parameter(random(32)), nn.Parameter(random(8))
    parameter.grad, other.grad = random(32, seed=4), torch.ones(8)
    wanted = parameter.detach() - 0.1 * parameter.grad

    class Interrupted(torch.optim.SGD):
        def step(self, closure: Any = None) -> None:
            in_threads(1, torch.optim.SGD([other], lr=0.1).step)
            with torch.no_grad():
                parameter.copy_(parameter.detach() - 0.1 * parameter.grad)

    with emulate(B4):
        Interrupted([parameter], lr=0.1).step()
    assert torch.equal(parameter, wanted)


def test_names_instead_of_formats_say_what_to_write() -> None:
    layer = nn.Linear(4, 4)
    for call in (
        lambda: emulate("Bfp8_b"),  # type: ignore[call-overload]
        lambda: emulate(layer, "bfp8_b"),  # type: ignore[call-overload]
        lambda: emulate(layer, B8, overrides={"*": "DataFormat.Bfp8_b"}),  # type: ignore[dict-item]
        lambda: emulate(B8, formats=["Bfp8_b"]),  # type: ignore[list-item]
        lambda: emulate(B8, accumulate="Bfp8_b"),  # type: ignore[arg-type]
    ):
        with pytest.raises(FormatError, match=r"allowed: .*; write DataFormat\.Bfp8_b$"):
            call()
    with pytest.raises(FormatError, match=r"; write DataFormat\.Float16_b$"):
        emulate(torch.bfloat16)  # type: ignore[call-overload]
    with pytest.raises(FormatError, match=r"; write MathFidelity\.HiFi2$"):
        emulate(B8, fidelity="HiFi2")  # type: ignore[arg-type]


WRITES: dict[str, Callable[[nn.Parameter], Any]] = {
    "in place": lambda p: p.mul_(2),
    "data": lambda p: p.data.mul_(2),
    "signs": lambda p: p.data.neg_(),
    "one element": lambda p: p.data[3, 5].add_(1),
    "exchanged": lambda p: p.data.copy_(p.detach().clone().flip(0)),
    "other data": lambda p: setattr(p, "data", p.detach() * 3),
    "numpy": lambda p: p.detach().numpy().__imul__(2),
}


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=str)
@pytest.mark.parametrize("device", ["cpu", "loom"])
@pytest.mark.parametrize("write", WRITES)
def test_kept_conversions_see_every_write(write: str, device: str, dtype: torch.dtype) -> None:
    if write == "numpy" and (device != "cpu" or dtype is torch.bfloat16):
        pytest.skip("NumPy has no such memory, or no such dtype")
    layer, x = nn.Linear(33, 16).to(device, dtype), random(4, 33).to(device, dtype)
    model = emulate(layer, B8)
    with torch.no_grad():
        before = model(x)
        assert torch.equal(model(x), before)
        WRITES[write](layer.weight)
        after = model(x)
        assert torch.equal(after, emulate(copy.deepcopy(layer), B8)(x))
    assert not torch.equal(before, after)


def test_kept_conversions_in_graphs_and_on_several_streams() -> None:
    loom: Any = torch.loom  # type: ignore[attr-defined]
    layer, x = nn.Linear(32, 32).to("loom"), random(4, 32).to("loom")
    model = emulate(layer, B8)
    with torch.no_grad():
        first = model(x)
        for _ in range(2):
            stream = loom.Stream()
            stream.wait_stream(loom.current_stream())
            with loom.stream(stream):
                assert torch.equal(model(x).cpu(), first.cpu())
            loom.current_stream().wait_stream(stream)
        graph = loom.CUDAGraph()
        with loom.graph(graph):
            result = model(x)
        layer.weight.mul_(-1.7)
        graph.replay()
        assert torch.equal(result, model(x))
        assert not torch.equal(result, first)


def test_kept_conversions_are_ordinary_tensors_again() -> None:
    """One kept in inference mode, under a transform or a fake mode must not be met outside of it."""
    layer, x = nn.Linear(32, 8).requires_grad_(False), random(4, 32)
    model = emulate(layer, B8)
    wanted = emulate(copy.deepcopy(layer), B8)(x)
    with torch.inference_mode():
        assert torch.equal(model(x), wanted)
    torch.func.grad(lambda x: model(x).sum())(x)
    torch.vmap(model)(x)
    with torch._subclasses.FakeTensorMode(allow_non_fake_inputs=True):
        model(torch.empty(4, 32))
    traced = torch.fx.experimental.proxy_tensor.make_fx(model)(x)
    y = x.clone().requires_grad_()
    assert torch.equal(model(y), wanted)
    model(y).sum().backward()
    assert y.grad is not None
    with torch.no_grad():
        layer.weight.mul_(2)
    assert torch.equal(traced(x), model(x))


def test_a_program_changes_its_own_weights_exactly() -> None:
    """Gradient descent by hand, as tutorials write it."""
    step = random(4, 32, seed=4) * 1e-3
    updates: list[Callable[[nn.Parameter], Any]] = [
        lambda p: p.sub_(step),
        lambda p: p.data.sub_(step),
        lambda p: p.detach().view(-1).add_(step.flatten(), alpha=-1),
        lambda p: torch.sub(p.data, step, out=p.data),
        lambda p: [row.sub_(s) for row, s in zip(p.unbind(0), step, strict=True)],
    ]
    for update in updates:
        parameter = nn.Parameter(random(4, 32))
        with torch.no_grad(), emulate(B4):
            update(parameter)
            copied = parameter.detach().clone().add_(step)
        assert torch.equal(parameter, random(4, 32) - step)
        assert torch.equal(copied, numerics.quantize(copied, B4))


@pytest.mark.long
def test_nothing_is_left_behind() -> None:
    """Neither hooks, modes nor objects, by many runs, some of them interrupted."""

    class Interrupting(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            signal.raise_signal(signal.SIGINT)
            return x

    model, x = nn.Sequential(nn.Linear(8, 8), nn.ReLU()), random(4, 8)
    interrupted = nn.Sequential(nn.Linear(8, 8), Interrupting())
    overrides = {"0": B4, "1": B2}

    def run(count: int) -> None:
        for _ in range(count):
            wrapped = emulate(model, B8, overrides=overrides)
            wrapped(x).sum().backward()
            wrapped.detach_hooks()
            emulate(copy.deepcopy(model), B8, overrides=overrides)(x)
            with torch.no_grad(), emulate(B8, overrides=overrides):
                model(x)
            with pytest.raises(KeyboardInterrupt), emulate(B8, overrides=overrides):
                interrupted(x)

    wrapped = emulate(interrupted, B8, overrides=overrides)
    with pytest.raises(KeyboardInterrupt):
        wrapped(x)
    tables = (
        modules._global_forward_pre_hooks,
        modules._global_forward_hooks,
        optimizers._global_optimizer_pre_hooks,
    )
    hooks = [dict(table) for table in tables]
    run(5)
    gc.collect()
    before = len(gc.get_objects())
    run(30)
    gc.collect()
    assert len(gc.get_objects()) - before < 100
    assert [dict(table) for table in tables] == hooks
    assert torch.overrides._get_current_function_mode_stack() == []  # type: ignore[no-untyped-call]
    assert torch.equal(x * 1.01, torch.mul(x, 1.01))
