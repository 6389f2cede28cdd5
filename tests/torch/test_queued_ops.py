"""Ops on side streams: what the caller sees before they have run, what they compute, and how they fail.

``gate`` holds a stream up, so that everything between ``hold`` and ``open`` has certainly not run yet.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import pytest
import torch
import torch.nn.functional as F  # noqa: N812
from torch import Tensor

import torch_loom.device as loom

if TYPE_CHECKING:
    from tests.gate import Gate


def seen(work: Callable[[], object]) -> None:
    """Run an op once in place, so that it is queued from then on."""
    work()
    loom.synchronize()


def on_side(gate: Gate, work: Callable[[], object]) -> tuple[object, loom.Stream]:
    """Return what an op gives while its stream is held up, and the stream. The caller opens the gate."""
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with loom.stream(side):
        seen(work)
        gate.hold(side)
        result = work()
        assert not side.query(), "it ran in place"
    return result, side


def test_values_that_the_host_looks_at_are_checked_at_the_call(gate: Gate) -> None:
    x = torch.ones(4, device="loom")
    rows = torch.tensor([1, 2], device="loom")
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with loom.stream(side):
        for call in (
            lambda: torch.normal(x, -x),
            lambda: torch.normal(0.0, -x),
            lambda: torch.segment_reduce(x, "sum", lengths=rows),
            lambda: F.fractional_max_pool2d(
                x.reshape(1, 1, 2, 2), 2, 1, _random_samples=x[:0].reshape(0, 1, 2)
            ),
        ):
            with pytest.raises(RuntimeError, match=r"expects all elements of std|Expected all rows|no less"):
                call()
        gate.hold(side)
        unchecked = torch.segment_reduce(x, "sum", lengths=rows * 2 - 1, unsafe=True)
        assert not side.query(), "it ran in place"
        gate.open()
        assert unchecked.tolist() == [1, 3]
    with pytest.raises(RuntimeError, match="cannot be captured"), loom.graph(loom.LoomGraph()):
        torch.normal(x, x)


def finish(gate: Gate) -> None:
    gate.open()
    loom.synchronize()


x = torch.arange(12.0).reshape(3, 4)
c = torch.complex(x, x + 1)

# name, what is done with x and c, or with copies of them on the device.
OPS: list[tuple[str, Callable[[Tensor, Tensor], object]]] = [
    ("add", lambda x, c: x + x),
    ("promoted", lambda x, c: x + 1.5),
    ("int / int", lambda x, c: x.long() / 7),
    ("compared", lambda x, c: x > 3),
    ("of a view", lambda x, c: x[1:, ::2] * 2),
    ("transposed", lambda x, c: x.t() + 1),
    ("channels last", lambda x, c: torch.relu(x.reshape(1, 3, 2, 2).to(memory_format=torch.channels_last))),
    ("reduced", lambda x, c: x.sum(0, keepdim=True)),
    ("empty", lambda x, c: x[:0] * 2),
    ("no dimension", lambda x, c: x[0, 0] * 2),
    ("matmul", lambda x, c: x @ x.t()),
    ("several results", lambda x, c: torch.max(x, 1)),
    ("tuple", lambda x, c: torch.std_mean(x, 1)),
    ("list", lambda x, c: torch.split(x * 1, [1, 2])),
    ("foreach", lambda x, c: torch._foreach_add([x, x[0]], 1.0)),
    ("cat", lambda x, c: torch.cat([x, x], 1)),
    ("where", lambda x, c: torch.where(x > 2, x, -x)),
    ("conjugate", lambda x, c: c.conj() * 2),
    ("negative", lambda x, c: c.conj().imag * 2),
    ("kept conjugate", lambda x, c: c.conj()),
    ("complex matmul", lambda x, c: c @ c.mH),
    ("cumsum", lambda x, c: torch.cumsum(x, 1)),
    ("sorted", lambda x, c: torch.sort(-x, dim=1)),
    ("gather", lambda x, c: torch.gather(x, 1, torch.zeros(3, 1, dtype=torch.long, device=x.device))),
    ("embedding", lambda x, c: F.embedding(x.argmax(0), x)),
    ("conv", lambda x, c: F.conv1d(x.reshape(1, 3, 4), x[:, :3].reshape(3, 3, 1), padding=1, groups=1)),
    ("batch norm", lambda x, c: F.batch_norm(x, None, None, training=True)),
    ("layer norm", lambda x, c: F.layer_norm(x, (4,), x[0], x[1])),
    ("attention", lambda x, c: F.scaled_dot_product_attention(*[x.reshape(1, 1, 3, 4)] * 3)),
    ("loss", lambda x, c: F.cross_entropy(x, x.argmax(1), ignore_index=1)),
    ("interpolate", lambda x, c: F.interpolate(x.reshape(1, 1, 3, 4), scale_factor=2.0, mode="bilinear")),
    ("pad", lambda x, c: F.pad(x, (1, 2), value=5.0)),
    ("fft", lambda x, c: torch.fft.rfft(x)),
    ("qr", lambda x, c: torch.linalg.qr(x)[1].abs()),
    ("cast", lambda x, c: x.to(torch.bfloat16)),
    ("clone", lambda x, c: x.t().clone(memory_format=torch.contiguous_format)),
    ("factory", lambda x, c: torch.full((2, 2), 3.5, device=x.device)),
    ("arange", lambda x, c: torch.arange(2, 9, 3, device=x.device)),
]


def tensors(result: object) -> list[Tensor]:
    return [result] if isinstance(result, Tensor) else list(result)  # type: ignore[call-overload]


@pytest.mark.parametrize(("name", "work"), OPS, ids=[name for name, _ in OPS])
def test_results_are_described_before_they_exist(
    gate: Gate, name: str, work: Callable[[Tensor, Tensor], object]
) -> None:
    expected = tensors(work(x, c))
    there = x.to("loom"), c.to("loom")
    result, _ = on_side(gate, lambda: work(*there))
    for queued, wanted in zip(tensors(result), expected, strict=True):
        assert (queued.dtype, queued.shape, queued.stride()) == (wanted.dtype, wanted.shape, wanted.stride())
        assert (queued.is_conj(), queued.is_neg()) == (wanted.is_conj(), wanted.is_neg())
        assert queued.device == torch.device("loom:0")
    finish(gate)
    for queued, wanted in zip(tensors(result), expected, strict=True):
        torch.testing.assert_close(queued.cpu(), wanted)


def test_in_place_results_are_the_operand(gate: Gate) -> None:
    y = x.to("loom")
    version = y._version
    result, _ = on_side(gate, lambda: y.mul_(2).add_(y))
    assert result is y
    assert y._version == version + 4
    finish(gate)
    torch.testing.assert_close(y.cpu(), x * 16)


@pytest.mark.parametrize("where", ["in place", "queued", "captured"])
def test_two_gradients_that_an_op_returns_as_one_tensor_are_scaled_once(where: str) -> None:
    # The gradient of an LSTM's biases is one tensor, returned twice. Autograd copies it; of two tensors over
    # one memory it would make the gradients of both, and what is done to each is done twice.
    x = torch.arange(24.0).reshape(2, 3, 4).to("loom")
    torch.manual_seed(1)
    lstm = torch.nn.LSTM(4, 3 + len(where)).to("loom")

    def scaled_gradients() -> list[Tensor | None]:
        lstm.zero_grad()
        lstm(x)[0].sum().backward()
        grads = [lstm.bias_ih_l0.grad, lstm.bias_hh_l0.grad]
        torch._foreach_mul_(grads, 2.0)
        return grads

    loom.synchronize()
    if where == "captured":
        graph = loom.LoomGraph()
        with loom.graph(graph):
            first, second = scaled_gradients()
        graph.replay()
    else:
        with loom.stream(loom.Stream() if where == "queued" else loom.default_stream()):
            first, second = scaled_gradients()
            loom.synchronize()
    assert first is not None
    assert second is not None
    assert first.data_ptr() != second.data_ptr()
    host = torch.nn.LSTM(4, 3 + len(where))
    host.load_state_dict({name: value.cpu() for name, value in lstm.state_dict().items()})
    host(x.cpu())[0].sum().backward()
    for scaled in (first, second):
        torch.testing.assert_close(scaled.cpu(), host.bias_ih_l0.grad * 2)


def test_one_tensor_as_two_operands_is_not_two_tensors(gate: Gate) -> None:
    """What is known of x.mul_(y) must not be used for x.mul_(x), nor the other way round."""
    a, b = torch.full((3,), 2.0, device="loom"), torch.full((3,), 5.0, device="loom")
    pair = torch.full((2, 3), 3.0, device="loom")
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with loom.stream(side):
        for _ in range(2):
            results = [a.clone().mul_(b), b.clone()]
            results[1].mul_(results[1])
            results.append(torch.mul(a, b, out=torch.empty(3, device="loom")))
            results.append(torch.mul(results[0], b, out=results[0]))
            results.append(torch.add(pair[0], pair[1]))
            results.append(torch.add(pair[0], pair[0]))
            results.append(torch.addbmm(a.expand(3, 3), b.expand(1, 3, 3), b.expand(1, 3, 3)))
    side.synchronize()
    assert [result.flatten()[0].item() for result in results] == [50, 25, 10, 50, 6, 6, 77]
    assert results[0] is results[3]


def test_out_is_resized_at_once(gate: Gate) -> None:
    y = x.to("loom")
    out = [torch.empty(0, device="loom") for _ in range(3)]
    result, _ = on_side(gate, lambda: torch.add(y, 1, out=out.pop()))
    assert isinstance(result, Tensor)
    assert result.shape == (3, 4)
    finish(gate)
    torch.testing.assert_close(result.cpu(), x + 1)


def test_an_operand_that_grows_is_read_at_its_old_size() -> None:
    left, right = torch.ones(2, 3, 5, device="loom"), torch.ones(2, 5, 4, device="loom")
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with loom.stream(side):
        for start in range(3):
            y = torch.full((1,), float(start), device="loom")
            y.addbmm_(left, right)
            assert y.tolist() == [[10.0 + start] * 4] * 3


def test_undefined_results(gate: Gate) -> None:
    y, weight = x.to("loom"), torch.ones(4, device="loom")
    result, _ = on_side(
        gate,
        lambda: torch.ops.aten.native_layer_norm_backward(
            y, y, [4], y[:, :1], y[:, :1], weight, None, [True, False, False]
        ),
    )
    assert isinstance(result, tuple)
    assert [item is None for item in result] == [False, True, True]


DATA_DEPENDENT: list[Callable[[Tensor], object]] = [
    lambda x: x.nonzero(),
    lambda x: x.masked_select(x > 4),
    lambda x: x[x > 4],
    lambda x: x.unique(),
    lambda x: torch.unique_consecutive(x, return_counts=True),
    lambda x: x.repeat_interleave((x[:, 1] % 3).long(), dim=0),
    lambda x: torch.bincount(x.flatten().long()),
    lambda x: x.sum().item(),
    lambda x: bool((x > 3).any()),
    lambda x: torch.equal(x, x + 1),
    lambda x: torch.allclose(x, x),
    lambda x: x[1].tolist(),
    lambda x: x.to_sparse().indices(),
    lambda x: x.float().histc(4),
]


@pytest.mark.parametrize("work", DATA_DEPENDENT)
def test_results_that_depend_on_values(work: Callable[[Tensor], object]) -> None:
    """They wait for what is queued: twice, with other values of the same shape."""
    side = loom.Stream()
    with loom.stream(side):
        for shift in range(3):
            values = (x + shift).flip(0)
            y = (x.to("loom") + shift).flip(0)
            result, wanted = work(y), work(values)
            if isinstance(wanted, (float, bool, list)):
                assert result == wanted
            else:
                for tensor, other in zip(tensors(result), tensors(wanted), strict=True):
                    assert tensor.shape == other.shape
                    torch.testing.assert_close(tensor.cpu(), other)


def test_an_op_not_seen_before_runs_in_place(gate: Gate) -> None:
    side = loom.Stream()
    y = torch.ones(2, 3, 5, 7, device="loom")
    with loom.stream(side):
        for size in range(1, 4):
            assert torch.flip(y[..., :size], (3,)).sum().item() == 30 * size


def test_host_operands_are_read_at_the_call(gate: Gate) -> None:
    y = torch.ones(3, device="loom")
    scalar, index = torch.tensor(2.0), torch.tensor([2, 0])
    rows = torch.arange(3.0, device="loom")
    result, _ = on_side(gate, lambda: [y * scalar, rows[index], y.clone().index_put_((index,), y[:2] * 5)])
    scalar.fill_(100)
    index.fill_(1)
    finish(gate)
    assert [t.tolist() for t in result] == [[2, 2, 2], [2, 0], [5, 1, 5]]  # type: ignore[attr-defined]


def test_a_number_stays_a_number(gate: Gate) -> None:
    """A float64 scalar of Python's does not widen a float32 tensor, one of NumPy's shape does not either."""
    y = torch.ones((), device="loom")
    result, _ = on_side(gate, lambda: (y - 0.5, y * torch.tensor(2.0), torch.deg2rad(y), 3 - y))
    finish(gate)
    assert [t.dtype for t in tensors(result)] == [torch.float32] * 4
    assert [round(t.item(), 4) for t in tensors(result)] == [0.5, 2, 0.0175, 2]


def test_the_default_dtype_counts(gate: Gate) -> None:
    y = torch.arange(3, device="loom")
    single, _ = on_side(gate, lambda: y / 2)
    finish(gate)
    try:
        torch.set_default_dtype(torch.float64)
        double, _ = on_side(gate, lambda: y / 2)
        finish(gate)
    finally:
        torch.set_default_dtype(torch.float32)
    assert (single.dtype, double.dtype) == (torch.float32, torch.float64)  # type: ignore[attr-defined]
    assert double.tolist() == [0, 0.5, 1]  # type: ignore[attr-defined]


def busy(work: Callable[[], object]) -> Any:
    """Return what an op gives on a stream that is busy for some milliseconds."""
    side = loom.Stream()
    side.wait_stream(loom.current_stream())
    with loom.stream(side):
        loom._sleep(20_000_000)
        result = work()
    loom.synchronize()
    return result


@pytest.mark.parametrize(
    ("dtype", "numbers"), [(torch.bfloat16, (8, 8, 1 << 22)), (torch.float16, (1 << 22, 8))]
)
def test_a_gradient_of_two_dtypes_has_the_kernels(dtype: torch.dtype, numbers: tuple[int, ...]) -> None:
    """PyTorch's shape function of `mse_loss_backward` says float32. Large calls may be the first."""
    for number in numbers:
        x = torch.ones(number, dtype=dtype, device="loom", requires_grad=True)
        y = torch.zeros(number, device="loom")
        [gradient] = busy(lambda x=x, y=y: torch.autograd.grad(F.mse_loss(x, y), x))
        assert gradient.dtype == dtype
        assert gradient[0].item() == 2 / number


def test_calls_without_a_kernel_are_refused_at_once() -> None:
    z = torch.ones(3, dtype=torch.complex64, device="loom")
    for _ in range(2):
        with pytest.raises(NotImplementedError, match="not implemented for 'Bool'"):
            busy(lambda: z.real.bool().clamp_max(True))
        # A TypeError since PyTorch 2.15.
        with pytest.raises((NotImplementedError, TypeError), match=r"not implemented for '?ComplexFloat"):
            busy(lambda: torch.aminmax(z))
        assert busy(lambda: torch.aminmax(z.real)) == (1, 1)
        with pytest.raises(IndexError, match="Expected reduction dim"):
            busy(lambda: z.real[:0].median(0))


def test_shared_memory_is_refused_or_warned_of_at_the_call() -> None:
    x, ones = torch.zeros(6, device="loom"), torch.ones(1, device="loom")
    first = torch.zeros(1, dtype=torch.long, device="loom")
    for _ in range(2):
        with pytest.warns(UserWarning, match="on expanded tensors is deprecated"):
            busy(lambda: x[:1].expand(4).index_put_((first,), ones))
        with pytest.raises(RuntimeError, match="refers to a single memory location"):
            busy(lambda: torch.linspace(0, 1, 4, out=x[:1].expand(4)))
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            busy(lambda: x[:3].put_(torch.arange(2, device="loom"), x[2:4]))
        with pytest.raises(RuntimeError, match="refer to a single memory location"):
            busy(lambda: first.put_(first, first))
    assert x.tolist() == [1, 0, 0, 0, 0, 0]


@pytest.mark.long
def test_lists_of_views_cost_what_other_lists_do() -> None:
    def issuing_seconds(count: int) -> float:
        views = torch.zeros(count * 4, device="loom").split(4)
        side, seconds = loom.Stream(), []
        side.wait_stream(loom.current_stream())
        for _ in range(4):
            with loom.stream(side):
                loom._sleep(100_000_000)
                start = time.thread_time()
                torch._foreach_add_(views, 1.0)
                seconds.append(time.thread_time() - start)
            loom.synchronize()
        return min(seconds)

    # Four times as many: a search through all pairs would take 16 times as long.
    assert issuing_seconds(4000) < 9 * issuing_seconds(1000)


def test_quantized_results_have_their_dtype() -> None:
    quantized = busy(lambda: torch.quantize_per_tensor(x.to("loom"), 0.5, 1, torch.quint8))
    assert isinstance(quantized, Tensor)
    assert quantized.dtype == torch.quint8
    assert torch.equal(quantized.dequantize().cpu(), x)


def test_zeros_without_memory() -> None:
    """Forward-mode gradients have such zeros: kernels pass them on, and views of them are zeros."""
    zeros = torch._efficientzerotensor(3, device="loom")
    assert busy(lambda: torch.ops.aten.mul.Scalar(zeros, 2)).tolist() == [0, 0, 0]
    assert (zeros.expand(2, 3) + 1).tolist() == [[1, 1, 1]] * 2
    assert torch._efficientzerotensor(2, dtype=torch.complex64, device="loom").real.tolist() == [0, 0]
    for size, message in (([-1], "negative dimension -1"), ([1 << 40, 1 << 40], "overflow")):
        with pytest.raises(RuntimeError, match=message):
            torch._efficientzerotensor(size, device="loom")


def test_operands_may_be_freed_while_queued(gate: Gate) -> None:
    """Memory that was given back is used again only behind what still reads it, on the same stream."""

    def chain() -> Tensor:
        total = torch.zeros(1000, device="loom")
        for i in range(20):
            total = total + torch.full((1000,), float(i), device="loom")
        return total

    result, _ = on_side(gate, chain)
    finish(gate)
    assert result.unique().tolist() == [190]  # type: ignore[attr-defined]


RANDOM: list[Callable[[], Tensor]] = [
    lambda: torch.rand(5, device="loom"),
    lambda: torch.randn(5, device="loom"),
    lambda: torch.randint(0, 9, (5,), device="loom"),
    lambda: torch.randperm(9, device="loom"),
    lambda: F.dropout(torch.ones(50, device="loom"), 0.4),
    lambda: torch.bernoulli(torch.full((50,), 0.5, device="loom")),
    lambda: torch.multinomial(torch.ones(9, device="loom"), 4),
    lambda: torch.empty(5, device="loom").exponential_(),
    lambda: torch.normal(torch.zeros(5, device="loom"), 2.0),
]


@pytest.mark.parametrize("draw", RANDOM)
def test_random_numbers_are_those_of_the_default_stream(gate: Gate, draw: Callable[[], Tensor]) -> None:
    loom.manual_seed(5)
    wanted = [draw().tolist() for _ in range(4)]
    offset = loom.get_rng_state()
    loom.manual_seed(5)
    result, _ = on_side(gate, draw)
    rest = [draw(), draw()]
    assert torch.equal(loom.get_rng_state(), offset)
    finish(gate)
    assert [result.tolist(), *(t.tolist() for t in rest)] == wanted[1:]  # type: ignore[attr-defined]


def test_sparse_tensors_work_in_place_behind_what_is_queued() -> None:
    side = loom.Stream()
    with loom.stream(side):
        for _ in range(3):
            dense = torch.eye(3, device="loom") * 2
            for layout in (torch.sparse_coo, torch.sparse_csr):
                sparse = dense.to_sparse(layout=layout)
                torch.testing.assert_close((sparse @ dense).cpu(), torch.eye(3) * 4)
                torch.testing.assert_close((sparse * 2).to_dense().cpu(), torch.eye(3) * 4)


def test_an_assert_of_no_single_value_is_refused_at_the_call(gate: Gate) -> None:
    one = torch.ones(1, device="loom")
    _, side = on_side(gate, lambda: torch._assert_async(one))
    for values, which in (([], "no values"), ([0, 0], "more than one value")):
        wrong = torch.tensor(values, device="loom")
        with loom.stream(side), pytest.raises(RuntimeError, match=f"with {which} is ambiguous"):
            torch._assert_async(wrong)
    finish(gate)


# Of each product that promotes nothing, calls that are right.
RIGHT: dict[str, Callable[[Tensor, Tensor], object]] = {
    "mm": lambda x, h: x @ x.T,
    "mm to float32": lambda x, h: torch.mm(h, h.T, out_dtype=torch.float32),
    "bmm to float32": lambda x, h: torch.bmm(h[None], h.T[None], out_dtype=torch.float32),
    "addmm": lambda x, h: torch.addmm(h[0, :3], h, h.T, beta=2, alpha=0.5),
    "addmm_": lambda x, h: (h @ h.T).addmm_(h, h.T),
    "addmm to float32": lambda x, h: torch.addmm(x[0, :3], h, h.T, out_dtype=torch.float32),
    "addmm of halves to float32": lambda x, h: torch.addmm(h[0, :3], h, h.T, out_dtype=torch.float32),
    "baddbmm": lambda x, h: torch.baddbmm(x[0, :3], x[None], x.T[None]),
    "baddbmm to float32": lambda x, h: torch.baddbmm(
        x[None, :, :3], h[None], h.T[None], out_dtype=torch.float32
    ),
    "addmv": lambda x, h: torch.addmv(x[:, 0], x, x[0]),
    "complex addmm": lambda x, h: torch.addmm(x[0, :3] + 0j, x + 0j, x.T + 0j, alpha=2j),
    "convolution": lambda x, h: F.conv2d(h[None, None], h[None, None, :2, :2], h[0, :1]),
    "linear": lambda x, h: F.linear(x, x, x[:, 0]),
}


@pytest.mark.parametrize("name", RIGHT)
def test_right_products_wait_for_nothing(gate: Gate, name: str) -> None:
    x = torch.arange(12.0, device="loom").reshape(3, 4)
    h = x.bfloat16()
    loom.synchronize()
    side = loom.Stream()
    with loom.stream(side):
        gate.hold(side)
        result = RIGHT[name](x, h)
        assert not side.query(), "it ran in place"
    finish(gate)
    assert isinstance(result, Tensor)
    torch.testing.assert_close(result, RIGHT[name](x, h))
    graph = loom.LoomGraph()
    with loom.graph(graph):
        captured = RIGHT[name](x, h)
    graph.replay()
    assert isinstance(captured, Tensor)
    torch.testing.assert_close(captured, result)
