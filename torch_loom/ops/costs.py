"""FLOPs of calls, from shapes, dtypes and the attributes that decide them.

An elementary function (``exp``, ``sqrt``) counts as one operation, a multiply-add as two.
"""

from __future__ import annotations

import math

from torch_loom.ops.model import Call, Cost, Tensor


def _results(call: Call) -> int:
    return sum(tensor.numel for tensor in call.outputs)


def _operands(call: Call) -> int:
    return sum(tensor.numel for tensor in call.inputs)


def _largest(call: Call) -> int:
    return max((tensor.numel for tensor in (*call.inputs, *call.outputs)), default=0)


def per_output(operations: int) -> Cost:
    """Return the cost of an op that does so many operations for each element of its results."""
    return lambda call: operations * _results(call)


def per_input(operations: int) -> Cost:
    """Return the cost of an op that does so many operations for each element it reads."""
    return lambda call: operations * _operands(call)


def per_element(operations: int) -> Cost:
    """Return the cost of an op that does so many operations for each element of its largest tensor."""
    return lambda call: operations * _largest(call)


def matmul(call: Call) -> int:
    """Return 2·(elements of the result)·(length of the summed dimension), plus an added matrix.

    The factors are the last two matrices or vectors among the inputs (``addmm`` has the summand first).
    Of a batch each product counts (``addbmm`` sums them).
    """
    first, second = _factors(call)
    if len(first.shape) == 1:
        products = math.prod(first.shape) * (math.prod(second.shape[1:]) if len(second.shape) > 1 else 1)
    else:
        columns = second.shape[-1] if len(second.shape) > 1 else 1
        products = first.numel * columns
    if "grouped" in call.op and len(first.shape) > len(second.shape):
        products //= first.shape[0]  # each group has columns of its own
    added = 0
    if "add" in call.op.partition("::")[2].partition(".")[0]:
        added = 2 * _results(call)
    return 2 * products + added


def _factors(call: Call) -> tuple[Tensor, Tensor]:
    """Return the two matrices that are multiplied: out= and scales stand behind them, a summand before."""
    name = call.op.partition("::")[2].partition(".")[0].rstrip("_")
    starts = 1 if name.startswith(("addmm", "addbmm", "addmv", "baddbmm", "sspaddmm", "_addmm")) else 0
    first, second = call.inputs[starts : starts + 2]
    return first, second


def semi_structured(call: Call) -> int:
    """Return 2·(elements of the result)·(length of the summed dimension), zeros of 2:4 matrices included."""
    name = call.op.partition("::")[2].partition(".")[0]
    if name.endswith("linear"):
        summed = call.inputs[0].shape[-1]
    else:
        summed = call.inputs[{"_cslt_sparse_mm": 1, "_sparse_semi_structured_addmm": 3}.get(name, 2)].shape[0]
    return 2 * _results(call) * summed


def linear(call: Call) -> int:
    """Return 2·rows·in·out of ``linear(input, weight, bias)``, whose weight is ``[out, in]``."""
    rows, weight = call.inputs[0], call.inputs[1]
    return 2 * rows.numel * weight.shape[0] + (_results(call) if len(call.inputs) > 2 else 0)


def linear_backward(call: Call) -> int:
    """Return two products of the size of the forward's, one for the input and one for the weight."""
    rows, weight = call.inputs[0], call.inputs[2]
    mask = call.get("output_mask", (True, True, True))
    return 2 * rows.numel * weight.shape[0] * sum(map(bool, mask[:2]))


def outer(call: Call) -> int:
    """Return the operations of ``addr(self, u, v)``: an outer product, scaled and added."""
    return 3 * _results(call)


def convolution(call: Call) -> int:
    """Return 2·(elements of the result)·(elements of one filter), or of the input where it is transposed.

    Inputs are the batch ``[N, C, …]`` and the weight ``[out, in / groups, …]``.
    """
    batch, weight = call.inputs[0], call.inputs[1]
    return _convolution(batch, weight, call.outputs[0], call) + (
        call.outputs[0].numel if len(call.inputs) > 2 else 0
    )


def _convolution(batch: Tensor, weight: Tensor, result: Tensor, call: Call) -> int:
    is_transposed = bool(call.get("transposed", False)) or "transpose" in call.op
    positions = batch.numel if is_transposed else result.numel
    return 2 * positions * math.prod(weight.shape[1:])


def convolution_backward(call: Call) -> int:
    """Return the products for the input's and the weight's gradient, as the mask asks, and a bias's sum.

    Inputs are the result's gradient, the batch and the weight.
    """
    gradient, batch, weight = call.inputs[:3]
    mask = tuple(call.get("output_mask", (True, True, True)))
    product = _convolution(batch, weight, gradient, call)
    return product * sum(map(bool, mask[:2])) + (gradient.numel if len(mask) > 2 and mask[2] else 0)


def _scores(call: Call, query: Tensor, key: Tensor) -> int:
    """Return how many pairs of a query and a key there are, in all batches and heads."""
    rows, columns = query.shape[-2], key.shape[-2]
    pairs = rows * columns
    if call.get("is_causal", False):  # a query sees the keys that are not behind it
        reached = min(rows, columns)
        pairs = reached * (reached + 1) // 2 + max(rows - columns, 0) * columns
    return math.prod(query.shape[:-2]) * pairs


def attention(call: Call) -> int:
    """Return the two products and the softmax of ``softmax(q·kᵀ)·v``; inputs ``[…, length, width]``."""
    query, key, value = call.inputs[:3]
    return _scores(call, query, key) * (2 * query.shape[-1] + 2 * value.shape[-1] + 5)


def attention_backward(call: Call) -> int:
    """Return five products: the scores again, and four gradients. Inputs: gradient, query, key, value."""
    query, key, value = call.inputs[1:4]
    return _scores(call, query, key) * (6 * query.shape[-1] + 4 * value.shape[-1] + 8)


def packed_attention(call: Call) -> int:
    """Return what attention of sequences costs that are packed; inputs ``[rows, heads, width]``.

    Their lengths are known from values only, so every query is taken to see the longest sequence of keys, or
    its window.
    """
    return _packed_scores(call, call.inputs[0]) * (
        2 * call.inputs[0].shape[-1] + 2 * call.inputs[2].shape[-1] + 5
    )


def packed_attention_backward(call: Call) -> int:
    """Return five products, as :func:`attention_backward`. Inputs: gradient, query, key, value."""
    return _packed_scores(call, call.inputs[1]) * (
        6 * call.inputs[1].shape[-1] + 4 * call.inputs[3].shape[-1] + 8
    )


def _packed_scores(call: Call, query: Tensor) -> int:
    keys = int(call.get("max_k", 1))
    left, right = (call.get(f"window_size_{side}") for side in ("left", "right"))
    seen = keys / 2 if call.get("is_causal", False) else keys
    if left is not None and left >= 0:
        seen = min(seen, left + 1 + (right if right is not None and right >= 0 else 0))
    return int(math.prod(query.shape[:-1]) * seen)


def pooling(call: Call) -> int:
    """Return one operation for each element that a window looks at."""
    window = call.get("kernel_size")
    dims = 3 if "3d" in call.op else 2 if "2d" in call.op else 1
    result = call.outputs[0].numel
    if not window:  # adaptive: the windows cover the input
        return max(call.inputs[0].numel, result)
    sizes: list[int] = list(window) if isinstance(window, (list, tuple)) else [int(window)]
    return result * math.prod(sizes if len(sizes) == dims else sizes * dims)


def sort(call: Call) -> int:
    """Return n·log₂ n comparisons along the sorted dimension."""
    values = call.inputs[0]
    if not values.shape:
        return 0
    dim = call.get("dim")
    length = values.numel if dim is None else values.shape[int(dim)]
    return values.numel * math.ceil(math.log2(max(length, 2)))


def _matrix(call: Call) -> tuple[int, int, int]:
    """Return batches, rows and columns of the first input."""
    shape = call.inputs[0].shape
    if len(shape) < 2:
        return 1, shape[0] if shape else 1, 1
    return math.prod(shape[:-2]), shape[-2], shape[-1]


def factorisation(numerator: int, denominator: int) -> Cost:
    """Return the cost of factorising an m×n matrix: ``numerator/denominator·m·n·min(m, n)`` operations."""

    def flops(call: Call) -> int:
        batches, rows, columns = _matrix(call)
        return batches * rows * columns * min(rows, columns) * numerator // denominator

    return flops


def triangular_solve(call: Call) -> int:
    """Return n²·columns of a solve with n×n triangles."""
    batches, rows, columns = _matrix(call)
    right = call.outputs[0].shape[-1] if call.outputs and len(call.outputs[0].shape) > 1 else 1
    return batches * rows * columns * right


def fourier(call: Call) -> int:
    """Return 5·n·log₂ n for the n elements that are transformed along ``dim``."""
    signal = max((*call.inputs, *call.outputs), key=lambda tensor: tensor.numel)
    dims = call.get("dim")
    if not signal.shape:
        return 0
    length = math.prod(signal.shape[d] for d in dims) if dims else signal.shape[-1]
    return 5 * signal.numel * math.ceil(math.log2(max(length, 2)))


def recurrent_layer(call: Call) -> int:
    """Return the products of a layer: inputs ``[time, batch, features]``, weights ``[gates·hidden, …]``."""
    sequence = call.inputs[0]
    positions = math.prod(sequence.shape[:-1])
    return sum(2 * positions * tensor.numel for tensor in call.inputs[1:] if len(tensor.shape) == 2)


def distances(call: Call) -> int:
    """Return three operations for each coordinate of each pair of rows."""
    rows = call.inputs[0]
    return 3 * _results(call) * (rows.shape[-1] if rows.shape else 1)


def optimizer_step(operations: int) -> Cost:
    """Return so many operations a parameter: the first list is a quarter or more of the inputs."""
    return lambda call: operations * max(_results(call), 0)
