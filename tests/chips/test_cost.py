"""The cost model: what its formulas hold whatever their coefficients, and which kernels an op becomes."""

from __future__ import annotations

import math

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from torch_loom import chips
from torch_loom.chips.cost import CostModel, Op, Tensor
from torch_loom.chips.cost.families import COEFFICIENTS, FAMILIES, defaults
from torch_loom.chips.cost.formulas import FORMULAS, overlapped
from torch_loom.chips.cost.lower import lower
from torch_loom.chips.rates import model, rates, roofline

H200 = model(chips.load("h200"))


def families(op: Op) -> list[str]:
    return [kernel.family for kernel in lower(op)]


def mm(m: int, k: int, n: int, dtype: str = "bfloat16") -> Op:
    return Op("mm", (Tensor.dense(dtype, m, k), Tensor.dense(dtype, k, n)), (Tensor.dense(dtype, m, n),))


def add(*shape: int, dtype: str = "float32") -> Op:
    tensor = Tensor.dense(dtype, *shape)
    return Op("add", (tensor, tensor), (tensor,))


@pytest.mark.parametrize("family", FAMILIES)
def test_a_family_has_a_formula_and_coefficients_within_their_ranges(family: str) -> None:
    declared = FAMILIES[family]
    assert declared.formula in FORMULAS
    assert declared.meaning
    for name, value in declared.defaults.items():
        assert COEFFICIENTS[name].low <= value <= COEFFICIENTS[name].high, (family, name)


def test_every_coefficient_is_used() -> None:
    used = {name for family in FAMILIES.values() for name in family.defaults}
    assert used == set(COEFFICIENTS)


@pytest.mark.parametrize("name", chips.available())
def test_every_shipped_chip_has_a_model(name: str) -> None:
    found = model(chips.load(name))
    small, large = found.cost(add(1000)), found.cost(add(10_000_000))
    assert 0 < small.seconds < large.seconds < 1
    assert 0 < found.cost(mm(512, 512, 512, "float16")).seconds < 1


@pytest.mark.long
@given(
    st.integers(1, 4096), st.integers(1, 4096), st.integers(1, 4096), st.sampled_from(["float32", "bfloat16"])
)
@settings(max_examples=60, deadline=None)
def test_a_product_takes_no_less_than_its_roofline(m: int, k: int, n: int, dtype: str) -> None:
    peak, _ = roofline(chips.load("h200"), dtype)
    # Short kernels run above the rated clock, which the published peak does not know.
    assert H200.cost(mm(m, k, n, dtype)).seconds > 2.0 * m * k * n / peak / 2.0


@given(st.integers(1, 1 << 26), st.integers(1, 1 << 26))
@settings(max_examples=60, deadline=None)
def test_more_elements_take_no_less_time(first: int, second: int) -> None:
    few, many = sorted((first, second))
    assert H200.cost(add(few)).seconds <= H200.cost(add(many)).seconds * (1 + 1e-9)


@given(st.floats(0, 1e9), st.floats(0, 1e9))
def test_overlapped_is_between_the_longer_and_the_sum(first: float, second: float) -> None:
    found = overlapped(first, second)
    assert max(first, second) * (1 - 1e-9) <= found <= (first + second) * (1 + 1e-9)


def test_large_copies_reach_the_memory_s_rate() -> None:
    tensor = Tensor.dense("float32", 1 << 28)
    seconds = H200.cost(Op("clone", (tensor,), (tensor,))).seconds
    assert 2 * (1 << 30) / seconds == pytest.approx(H200.rates.dram_bytes_per_ns * 1e9, rel=0.05)


def test_a_cached_operand_is_read_faster() -> None:
    def rate(count: int) -> float:
        tensor = Tensor.dense("float32", count)
        found = H200.cost(Op("relu", (tensor,), (tensor,)))
        return 8 * count / (found.seconds - found.launch)

    assert rate(1 << 21) > 1.3 * rate(1 << 26)


def test_a_split_of_the_inner_dimension_helps_few_tiles() -> None:
    deep, wide = H200.cost(mm(128, 65_536, 128)).seconds, H200.cost(mm(4096, 64, 4096)).seconds
    assert deep < 20 * wide


def test_time_is_the_sum_of_launches_and_the_rest() -> None:
    found = H200.cost(add(1 << 24))
    assert found.kernels == 1
    assert found.seconds == pytest.approx(found.launch + found.memory, rel=0.1)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (Op("view", (Tensor.dense("float32", 4),), (Tensor.dense("float32", 2, 2),)), []),
        (Op("empty", (), (Tensor.dense("float32", 4),)), []),
        (add(0), []),
        (add(16), ["elementwise"]),
        (Op("tanh", (Tensor.dense("float32", 4),), (Tensor.dense("float32", 4),)), ["elementwise_heavy"]),
        (mm(8, 8, 8), ["matmul"]),
        (mm(8, 8, 8, "float32"), ["matmul_vector"]),
        (mm(1, 8, 8), ["vector_product"]),
        (mm(0, 8, 8), []),
        (Op("zeros", (), (Tensor.dense("float32", 4),)), ["fill"]),
        (Op("never_heard_of", (Tensor.dense("float32", 4),), (Tensor.dense("float32", 4),)), ["elementwise"]),
        (
            Op("pow", (Tensor.dense("float32", 4),), (Tensor.dense("float32", 4),), {"exponent": 2}),
            ["elementwise"],
        ),
        (
            Op(
                "add",
                (Tensor.dense("float32", 4, 4), Tensor.dense("float32", 4)),
                (Tensor.dense("float32", 4, 4),),
            ),
            ["elementwise_strided"],
        ),
        (
            Op("clone", (Tensor("float32", (64, 32), (1, 64)),), (Tensor.dense("float32", 64, 32),)),
            ["copy_transposed"],
        ),
    ],
)
def test_the_kernels_of_an_op(op: Op, expected: list[str]) -> None:
    assert families(op) == expected


def test_a_linear_layer_is_the_product_of_all_its_rows() -> None:
    x, weight, bias = (
        Tensor.dense("bfloat16", 4, 7, 96),
        Tensor.dense("bfloat16", 32, 96),
        Tensor.dense("bfloat16", 32),
    )
    flat, y = Tensor.dense("bfloat16", 28, 96), Tensor.dense("bfloat16", 4, 7, 32)
    turned = Tensor("bfloat16", (96, 32), (1, 96))
    (product,) = lower(Op("addmm", (bias, flat, turned), (Tensor.dense("bfloat16", 28, 32),)))
    assert lower(Op("linear", (x, weight, bias), (y,))) == [product]
    (plain,) = lower(Op("linear", (x, weight), (y,)))
    assert (plain.m, plain.n, plain.k, plain.batch, plain.epilogue) == (28, 32, 96, 1, False)


def test_leading_dimensions_of_a_product_are_its_batch() -> None:
    left, right = Tensor.dense("bfloat16", 2, 3, 8, 16), Tensor.dense("bfloat16", 2, 3, 16, 4)
    (product,) = lower(Op("bmm", (left, right), (Tensor.dense("bfloat16", 2, 3, 8, 4),)))
    assert (product.batch, product.m, product.n, product.k) == (6, 8, 4, 16)
    (rows,) = lower(
        Op("mm", (left, Tensor.dense("bfloat16", 16, 4)), (Tensor.dense("bfloat16", 2, 3, 8, 4),))
    )
    assert (rows.batch, rows.m) == (1, 48)


def test_the_gradient_of_a_layer_norm_sums_columns_too() -> None:
    x, w = Tensor.dense("float32", 64, 32), Tensor.dense("float32", 32)
    op = Op("native_layer_norm_backward", (x, x, w, w), (x, w, w), {"normalized_shape": [32]})
    assert families(op) == ["layer_norm_backward", "reduce_columns"]


def test_a_permuted_input_of_a_layer_norm_is_copied_first() -> None:
    x, w = Tensor("float32", (8, 16, 16, 64), (16384, 16, 1, 256)), Tensor.dense("float32", 64)
    dense = Tensor.dense("float32", 8, 16, 16, 64)
    op = Op("native_layer_norm", (x, w, w), (dense,), {"normalized_shape": [64]})
    assert families(op) == ["copy_transposed", "layer_norm"]


def convolution(dtype: str, window: int, channels_last: bool = False, groups: int = 1) -> Op:
    strides = (16 * 32 * 32, 1, 32 * 16, 16) if channels_last else (16 * 32 * 32, 32 * 32, 32, 1)
    x = Tensor(dtype, (4, 16, 32, 32), strides)
    w = Tensor.dense(dtype, 16, 16 // groups, window, window)
    return Op("convolution", (x, w), (x,), {"stride": [1, 1], "groups": groups})


def test_a_convolution_of_narrow_dtypes_converts_its_layout() -> None:
    assert families(convolution("bfloat16", 3)) == ["layout", "layout", "layout", "convolution"]
    assert families(convolution("bfloat16", 3, channels_last=True)) == ["convolution"]
    assert families(convolution("bfloat16", 1)) == ["convolution"]
    assert families(convolution("float32", 3)) == ["convolution_vector"]
    assert families(convolution("float32", 3, groups=16)) == ["depthwise_convolution"]


def test_the_products_of_a_convolution_and_its_gradients_have_equal_flops() -> None:
    forward = lower(convolution("float32", 3))
    x, w = convolution("float32", 3).inputs
    attributes = {"stride": [1, 1], "groups": 1, "output_mask": [True, True, True]}
    backward = lower(Op("convolution_backward", (x, x, w), (x, w), attributes))
    flops = [kernel.m * kernel.n * kernel.k for kernel in (*forward, *backward) if kernel.m]
    assert len(flops) == 3
    assert max(flops) == min(flops)
    assert [kernel.family for kernel in backward][-1] == "reduce_columns"


def test_a_list_of_tensors_is_cut_into_launches() -> None:
    tensors = tuple(Tensor.dense("float32", 1000) for _ in range(250))
    (kernel,) = lower(Op("_foreach_mul_", tensors, (), {"scalar": 2.0}, (250,)))
    # 110 tensors fit into the arguments of one launch over a single list.
    assert kernel.launches == 3
    (large,) = lower(Op("_foreach_mul_", (Tensor.dense("float32", 1 << 26),), (), {}, (1,)))
    assert large.launches == math.ceil((1 << 26) / 65_536 / 320)
    assert lower(Op("_foreach_mul_", (), ())) == []


def test_causal_attention_does_about_half() -> None:
    q = Tensor.dense("float16", 1, 8, 4096, 64)
    full = Op("scaled_dot_product_attention", (q, q, q), (q,))
    half = full._replace(attributes={"is_causal": True})
    assert 0.45 < H200.cost(half).seconds / H200.cost(full).seconds < 0.65


def test_many_indices_are_sorted_before_their_gradients_are_added() -> None:
    def backward(count: int) -> list[str]:
        tensors = (Tensor.dense("float32", count, 64), Tensor.dense("int64", count))
        return families(Op("embedding_dense_backward", tensors, (Tensor.dense("float32", 1000, 64),)))

    assert backward(100) == ["fill", "scatter"]
    assert backward(10_000) == ["fill", "sort", "scatter"]


def test_a_model_remembers_kernels_and_takes_given_coefficients() -> None:
    slow = {"elementwise": {**defaults("elementwise"), "start_ns": 1e6}}
    found = CostModel(rates(chips.load("h200")), slow)
    assert found.cost(add(16)).seconds == found.cost(add(16)).seconds > 1e-3
    assert found.coefficients["copy"] == defaults("copy")


def test_products_with_semi_structured_matrices_cost_as_products() -> None:
    half, codes = Tensor.dense("bfloat16", 512, 1024), Tensor.dense("int16", 512, 128)
    right, out = Tensor.dense("bfloat16", 2048, 256), Tensor.dense("bfloat16", 512, 256)
    whole = lower(mm(512, 2048, 256))[0]
    bias = Tensor.dense("bfloat16", 512)
    packed = Tensor.dense("bfloat16", 512, 1152)
    rows, by_row = Tensor.dense("bfloat16", 256, 2048), Tensor.dense("bfloat16", 256, 512)
    for op in (
        Op("_sparse_semi_structured_mm", (half, codes, right), (out,)),
        Op("_sparse_semi_structured_addmm", (bias, half, codes, right), (out,)),
        Op("_cslt_sparse_mm", (packed, right), (out,)),
        Op("_sparse_semi_structured_linear", (rows, half, codes), (by_row,)),
    ):
        (kernel,) = lower(op)
        assert (kernel.family, kernel.m * kernel.n, kernel.k) == (whole.family, 512 * 256, 2048)
        assert kernel.read_bytes < whole.read_bytes
