"""Each op of PyTorch's that a GPU computes with matrix instructions goes through their rule."""

from __future__ import annotations

import math
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
from torch import Tensor, nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.nn import functional
from torch.nn.functional import ScalingType, SwizzleType, scaled_mm

from tests.numerics.test_tensor_cores import chained, random
from torch_loom.errors import FormatError, OperandError
from torch_loom.numerics import BlockScaled, tensor_core
from torch_loom.numerics.tensor_cores.block_formats import to_blocks
from torch_loom.numerics.tensor_cores.emulation import TensorCores

A, B, C, V = random(33, 64), random(64, 31), random(33, 31), random(64)
A3, B3, C3 = random(4, 33, 64), random(4, 64, 31), random(4, 33, 31)
X1, X2, X3 = random(2, 16, 20), random(2, 16, 9, 9), random(1, 16, 5, 6, 7)
W1, W2, W3 = random(24, 16, 3), random(24, 16, 3, 3), random(24, 16, 3, 3, 3)
HEADS = random(1, 2, 16, 32)
F8, ONE = random(16, 16, dtype=torch.float8_e4m3fn), torch.ones(())
G, H, ENDS = random(32, 64), random(2, 64, 32), torch.tensor([8, 32], dtype=torch.int32)


def attention_layer() -> Tensor:
    layer = nn.MultiheadAttention(64, 4, batch_first=True).half()
    x = random(2, 5, 64)
    return layer(x, x, x, need_weights=False)[0]


# Products of each, where it is not one.
PRODUCTS: dict[str, tuple[Callable[[], Any], int]] = {
    "mm": (lambda: torch.mm(A, B), 1),
    "mm.out": (lambda: torch.mm(A, B, out=C.clone()), 1),
    "matmul": (lambda: A3 @ B, 1),
    "matmul.out": (lambda: torch.matmul(A, B, out=C.clone()), 1),
    "matmul of a vector": (lambda: A @ V, 1),
    "bmm": (lambda: torch.bmm(A3, B3), 1),
    "bmm.out": (lambda: torch.bmm(A3, B3, out=C3.clone()), 1),
    "addmm": (lambda: torch.addmm(C, A, B), 1),
    "addmm.out": (lambda: torch.addmm(C, A, B, out=C.clone()), 1),
    "addmm_": (lambda: C.clone().addmm_(A, B), 1),
    "baddbmm": (lambda: torch.baddbmm(C3, A3, B3), 1),
    "baddbmm.out": (lambda: torch.baddbmm(C3, A3, B3, out=C3.clone()), 1),
    "baddbmm_": (lambda: C3.clone().baddbmm_(A3, B3), 1),
    "addbmm": (lambda: torch.addbmm(C, A3, B3), 4),
    "addbmm.out": (lambda: torch.addbmm(C, A3, B3, out=C.clone()), 4),
    "addbmm_": (lambda: C.clone().addbmm_(A3, B3), 4),
    "_addmm_activation": (lambda: torch._addmm_activation(C[0], A, B, use_gelu=True), 1),
    "mv": (lambda: torch.mv(A, V), 1),
    "mv.out": (lambda: torch.mv(A, V, out=C[:, 0].clone()), 1),
    "addmv": (lambda: torch.addmv(C[:, 0], A, V), 1),
    "addmv_": (lambda: C[:, 0].clone().addmv_(A, V), 1),
    "linear": (lambda: functional.linear(A3, B.T.contiguous(), C[0]), 1),
    "einsum": (lambda: torch.einsum("bik,bkj->bij", A3, B3), 1),
    "tensordot": (lambda: torch.tensordot(A, B, 1), 1),
    "chain": (lambda: torch.linalg.multi_dot([A, B, C.T]), 2),
    "bilinear": (lambda: functional.bilinear(A[:, :16], A[:, 16:32], random(5, 16, 16)), 2),
    "conv1d": (lambda: functional.conv1d(X1, W1), 1),
    "conv2d": (lambda: functional.conv2d(X2, W2), 1),
    "conv3d": (lambda: functional.conv3d(X3, W3), 1),
    "conv_transpose1d": (lambda: functional.conv_transpose1d(X1, W1.transpose(0, 1), stride=2), 1),
    "conv_transpose2d": (lambda: functional.conv_transpose2d(X2, W2.transpose(0, 1), stride=2), 1),
    "conv_transpose3d": (lambda: functional.conv_transpose3d(X3, W3.transpose(0, 1)), 1),
    "attention": (lambda: functional.scaled_dot_product_attention(HEADS, HEADS, HEADS), 2),
    "attention layer": (attention_layer, 4),
    "lstm": (lambda: nn.LSTM(64, 8).half()(A[None])[0], 2),
    "_grouped_mm": (lambda: torch._grouped_mm(G.bfloat16(), H.bfloat16(), offs=ENDS), 2),
    "_scaled_mm": (lambda: torch._scaled_mm(F8, F8.T, ONE, ONE, out_dtype=torch.float32), 1),
    "_scaled_mm.out": (
        lambda: torch._scaled_mm(F8, F8.T, ONE, ONE, out_dtype=torch.float32, out=torch.empty(16, 16)),
        1,
    ),
    "scaled_mm": (
        lambda: scaled_mm(F8, F8.T, ONE, ScalingType.TensorWise, ONE, ScalingType.TensorWise),
        1,
    ),
    # A library has no matrix instructions for these: cublasDotEx, and products of elements.
    "dot": (lambda: torch.dot(V, V), 0),
    "outer": (lambda: torch.outer(V, V), 0),
    "float32": (lambda: A.float() @ B.float(), 0),
}


@pytest.fixture
def products(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The ops that asked for products of matrix instructions."""
    asked: list[str] = []
    product = TensorCores.product

    def counted(self: TensorCores, *args: Any, **options: Any) -> Tensor:
        asked.append(options.get("op", ""))
        return product(self, *args, **options)

    monkeypatch.setattr(TensorCores, "product", counted)
    return asked


@pytest.mark.parametrize("inference", [False, True])
@pytest.mark.parametrize("name", PRODUCTS)
def test_products_go_through_the_rule(name: str, inference: bool, products: list[str]) -> None:
    call, count = PRODUCTS[name]
    with torch.inference_mode(inference), torch.no_grad():
        plain = call()
        assert not products
        with tensor_core(chip="h100"):
            value = call()
    if name in ("lstm", "attention layer"):  # their parameters differ from call to call
        assert len(products) >= count
        return
    assert len(products) == count
    torch.testing.assert_close(value.float(), plain.float(), rtol=2e-2, atol=0.15)
    if count == 0:
        assert torch.equal(value, plain)


def test_results_are_those_of_the_plain_product() -> None:
    sums = chained("h100", A, B)
    with tensor_core(chip="h100"):
        assert torch.equal(torch.mm(A, B, out_dtype=torch.float32), sums)
        assert torch.equal(torch.mm(A, B, out=C.clone()), sums.half())
        resized = torch.empty(0, dtype=torch.float16)
        assert torch.equal(torch.mm(A, B, out=resized), sums.half())
        assert torch.equal(C.clone().addmm_(A, B, beta=2), (sums + C.float() * 2).half())
        assert torch.equal(A @ B[:, 0], sums[:, 0].half())
        added = torch.addbmm(C, A[None], B[None], beta=0.5)
        assert torch.equal(added, (sums + C.float() * 0.5).half())
        wanted = functional.gelu(sums + C[0].float(), approximate="tanh").half()
        assert torch.equal(torch._addmm_activation(C[0], A, B, use_gelu=True), wanted)
        grouped = torch._grouped_mm(G.bfloat16(), H.bfloat16(), offs=ENDS)
    for i, (first, last) in enumerate(((0, 8), (8, 32))):
        wanted = chained("h100", G[first:last].bfloat16().contiguous(), H[i].bfloat16()).bfloat16()
        assert torch.equal(grouped[first:last], wanted)


CONVOLUTIONS = [
    (1, False, {"stride": 2, "padding": 1}),
    (3, False, {"stride": (1, 2, 1), "padding": (1, 0, 2), "dilation": 2, "groups": 2}),
    (1, True, {"stride": 3, "padding": 1, "output_padding": 2}),
    (2, True, {"stride": (2, 1), "padding": (2, 0), "dilation": 2, "groups": 2}),
    (2, True, {"stride": 1, "padding": 1, "dilation": 3, "output_padding": 2}),
    (3, True, {"stride": 2}),
]


@pytest.mark.parametrize(("rank", "transposed", "options"), CONVOLUTIONS)
def test_convolutions_of_every_kind(rank: int, transposed: bool, options: dict[str, Any]) -> None:
    kinds = (nn.ConvTranspose1d, nn.ConvTranspose2d, nn.ConvTranspose3d) if transposed else ()
    kinds = kinds or (nn.Conv1d, nn.Conv2d, nn.Conv3d)
    layer = kinds[rank - 1](4, 6, 3, **options).half()
    exact = kinds[rank - 1](4, 6, 3, **options).double()
    exact.load_state_dict({name: value.double() for name, value in layer.state_dict().items()})
    x = random(2, 4, *(9, 8, 7)[:rank], seed=1).requires_grad_()
    wide = x.detach().double().requires_grad_()
    with tensor_core(chip="h100"):
        out = layer(x)
        out.float().square().sum().backward()
    wanted = exact(wide)
    wanted.square().sum().backward()
    assert out.shape == wanted.shape
    pairs = [(out, wanted), (x.grad, wide.grad)]
    pairs += [(layer.weight.grad, exact.weight.grad), (layer.bias.grad, exact.bias.grad)]
    for got, value in pairs:
        assert (got.double() - value).norm() <= 2e-3 * value.norm()


def test_a_convolution_of_one_dimension_is_its_windows() -> None:
    windows = X1.unfold(2, 3, 1).permute(0, 2, 3, 1).reshape(-1, 48)
    sums = chained("h100", windows.contiguous(), W1.permute(2, 1, 0).reshape(48, 24))
    with tensor_core(chip="h100"):
        out = functional.conv1d(X1, W1)
    assert torch.equal(out, sums.view(2, 18, 24).transpose(1, 2).half())


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_attention_keeps_float32_scores_and_rounds_its_exponentials(dtype: torch.dtype) -> None:
    q, k, v = (random(16, 32, seed=seed, dtype=dtype) for seed in range(3))
    scores = chained("h100", q, k.T.contiguous()) * (1 / math.sqrt(32))
    shares = (scores - scores.amax(-1, keepdim=True)).exp()
    wanted = chained("h100", shares.to(dtype), v) / shares.sum(-1, keepdim=True)
    with tensor_core(chip="h100"):
        out = functional.scaled_dot_product_attention(q[None, None], k[None, None], v[None, None])
    assert torch.equal(out[0, 0], wanted.to(dtype))
    plain = functional.scaled_dot_product_attention(q.float(), k.float(), v.float()).to(dtype)
    assert not torch.equal(out[0, 0], plain)


def masks(q: Tensor, k: Tensor) -> list[dict[str, Any]]:
    added = random(q.shape[-2], k.shape[-2], seed=9).to(q.dtype)
    return [
        {},
        {"is_causal": True},
        {"attn_mask": added},
        {"attn_mask": added > 0},
        {"scale": 0.3},
        {"enable_gqa": True},
    ]


@pytest.mark.parametrize("choice", range(6))
def test_gradients_of_attention(choice: int, products: list[str]) -> None:
    q, k = random(2, 4, 24, 32, seed=0), random(2, 4 if choice < 5 else 2, 20, 32, seed=1)
    options = masks(q, k)[choice]
    given = [each.requires_grad_() for each in (q, k, random(*k.shape, seed=2))]
    exact = {name: value.double() if name == "attn_mask" else value for name, value in options.items()}
    if options.get("attn_mask") is not None and options["attn_mask"].dtype is torch.bool:
        exact = options
    elif "attn_mask" in options:
        given.append(options["attn_mask"].requires_grad_())
    wide = [each.detach().double().requires_grad_() for each in given]
    if len(given) == 4:
        exact = {"attn_mask": wide[3]}
    grad = random(2, 4, 24, 32, seed=5)
    with tensor_core(chip="h100"):
        out = functional.scaled_dot_product_attention(*given[:3], **options)
        assert len(products) == 2
        out.backward(grad)
    assert len(products) == 2 + 5
    wanted = functional.scaled_dot_product_attention(*wide[:3], **exact)
    wanted.backward(grad.double())
    for got, value in zip(
        [out, *(each.grad for each in given)], [wanted, *(e.grad for e in wide)], strict=True
    ):
        assert got is not None
        assert value is not None
        assert (got.double() - value).norm() <= 1e-3 * value.norm()


def test_attention_of_masked_rows_and_with_dropout() -> None:
    allowed = torch.ones(16, 16, dtype=torch.bool)
    allowed[3] = False
    q = HEADS.clone().requires_grad_()
    with tensor_core(chip="h100"):
        out = functional.scaled_dot_product_attention(q, HEADS, HEADS, allowed)
        out.float().sum().backward()
        torch.manual_seed(0)
        ones = torch.ones_like(HEADS)
        dropped = functional.scaled_dot_product_attention(HEADS, HEADS, ones, dropout_p=0.5)
        nothing = functional.scaled_dot_product_attention(HEADS, HEADS, ones, dropout_p=1.0)
    assert (out[..., 3, :] == 0).all()
    assert q.grad is not None
    assert (q.grad[..., 3, :] == 0).all()
    assert q.grad.isfinite().all()
    assert 0.5 < dropped.float().mean() < 1.5
    assert dropped.unique().numel() > 4
    assert (nothing == 0).all()


def test_scaled_mm_takes_recipes() -> None:
    rows, columns = torch.rand(16, 1), torch.rand(1, 16)
    with tensor_core(chip="h100"):
        plain = torch._scaled_mm(F8, F8.T, ONE, ONE, out_dtype=torch.float32)
        scaled = scaled_mm(
            F8,
            F8.T,
            rows,
            ScalingType.RowWise,
            columns,
            ScalingType.RowWise,
            output_dtype=torch.float32,
        )
    assert torch.equal(scaled, plain * (rows * columns))
    with (
        tensor_core(chip="h100"),
        pytest.raises(FormatError, match="no rule for scales BlockWise1x128 with BlockWise1x128; allowed"),
    ):
        torch.ops.aten._scaled_mm_v2(
            F8, F8.T, [rows], [4], [0], [rows], [4], [0], None, torch.float32, [], False
        )


def test_scaled_mm_takes_blocks() -> None:
    a, b = random(128, 128, seed=1, dtype=torch.float32), random(128, 128, seed=2, dtype=torch.float32)
    left, right = (to_blocks("test", each, BlockScaled.MXFP8) for each in (a, b))

    def swizzled(codes: Tensor) -> Tensor:
        tiles = codes.view(-1, 4, 32, codes.shape[1] // 4, 4).permute(0, 3, 2, 1, 4)
        return tiles.contiguous().flatten().view(torch.float8_e8m0fnu)

    scales = [swizzled(each.scales) for each in (left, right)]
    operands = [each.elements.to(torch.float8_e4m3fn) for each in (left, right)]
    with tensor_core(chip="b200"):
        got = scaled_mm(
            operands[0],
            operands[1].T,
            scales[0],
            ScalingType.BlockWise1x32,
            scales[1],
            ScalingType.BlockWise1x32,
            swizzle_a=SwizzleType.SWIZZLE_32_4_4,
            swizzle_b=SwizzleType.SWIZZLE_32_4_4,
            output_dtype=torch.float32,
        )
    with tensor_core(chip="b200", format=BlockScaled.MXFP8):
        assert torch.equal(got, a @ b.T)


def test_scale_result_multiplies_results_of_fp8_and_no_others() -> None:
    two = torch.tensor(2.0)
    with tensor_core(chip="h100"):
        exact = torch._scaled_mm(F8, F8.T, ONE, ONE, out_dtype=torch.float32)
        out = torch._scaled_mm(F8, F8.T, ONE, ONE, scale_result=two, out_dtype=torch.float8_e4m3fn)
        assert torch.equal(out.float(), (exact * 2).to(torch.float8_e4m3fn).float())
        with pytest.raises(OperandError, match=r"scale_result with a result of torch\.float32; allowed"):
            torch._scaled_mm(F8, F8.T, ONE, ONE, scale_result=two, out_dtype=torch.float32)


def test_grouped_products_with_scales_are_refused_by_name() -> None:
    with (
        tensor_core(chip="h100"),
        pytest.raises(FormatError, match=r"_scaled_grouped_mm: no rule on h100.*; allowed: _scaled_mm"),
    ):
        torch.ops.aten._scaled_grouped_mm(F8, F8.T[None].repeat(2, 1, 1), ONE, ONE, offs=ENDS)


def test_a_sum_beyond_float32_inside_fp4_products_is_refused() -> None:
    big, factor = torch.full((1, 192), 2.0**120), torch.full((192, 1), 2.0**60)
    with (
        tensor_core(chip="b200", format=BlockScaled.MXFP4),
        pytest.raises(FormatError, match="mm: a sum of MXFP4 products is infinite after 128 of 192 products"),
    ):
        big @ factor
    with tensor_core(chip="b200", format=BlockScaled.MXFP4):
        assert (big[:, :64] @ factor[:64]).isinf().all()  # the last instruction's sum may be


def test_attention_and_convolutions_of_nothing_have_their_shape() -> None:
    q, k = torch.zeros(1, 2, 0, 8, dtype=torch.float16), torch.zeros(1, 2, 4, 8, dtype=torch.float16)
    attention = torch.nn.functional.scaled_dot_product_attention
    with tensor_core(chip="h100"):
        assert attention(q, k, k).shape == (1, 2, 0, 8)
        assert attention(k, q, q).shape == (1, 2, 4, 8)
        images = torch.zeros(0, 3, 8, 8, dtype=torch.float16)
        filters = torch.zeros(4, 3, 3, 3, dtype=torch.float16)
        assert torch.nn.functional.conv2d(images, filters).shape == (0, 4, 6, 6)
        with pytest.raises(RuntimeError, match="must divide"):
            attention(torch.zeros(1, 5, 4, 8, dtype=torch.float16), k, k, enable_gqa=True)


def test_threads_in_contexts_leave_the_switches_of_the_process() -> None:
    inside, outside = threading.Event(), threading.Event()

    def enter() -> None:
        with tensor_core(chip="a100"):
            inside.set()
            outside.wait(60)

    def switches() -> tuple[bool, bool, bool]:
        cuda = torch.backends.cuda
        return (
            cuda.flash_sdp_enabled(),
            cuda.mem_efficient_sdp_enabled(),
            torch.backends.mha.get_fastpath_enabled(),
        )

    before = switches()
    thread = threading.Thread(target=enter)
    with tensor_core(chip="h100"):
        thread.start()
        assert inside.wait(60)
        assert switches() == (False, False, False)
    assert switches() == (False, False, False)
    outside.set()
    thread.join()
    assert switches() == before


def attention_under_autocast(x: list[Tensor]) -> Tensor:
    with torch.autocast("cpu", dtype=torch.float16):
        return functional.scaled_dot_product_attention(*x)


def test_autocast_narrows_attention_first() -> None:
    x = [random(2, 4, 9, 16, seed=i).float() for i in range(3)]
    with tensor_core(chip="a100"):
        expected = functional.scaled_dot_product_attention(*(each.half() for each in x))
        found = attention_under_autocast(x)
    assert found.dtype is torch.float16
    assert torch.equal(found, expected)


def test_tracing_sparse_and_nested_tensors_go_on_as_without_the_mode() -> None:
    layer, x = nn.Linear(8, 4), torch.ones(2, 8)
    with tensor_core(chip="a100", tf32=True):
        with FakeTensorMode():
            assert (torch.ones(4, 8) @ torch.ones(8, 3)).shape == (4, 3)
        assert torch.export.export(layer, (x,)).module()(x).shape == (2, 4)
        for layout in (torch.sparse_coo, torch.sparse_csr):
            eye = torch.eye(8).to_sparse(layout=layout)
            assert torch.mm(eye, torch.ones(8, 3)).equal(torch.ones(8, 3))
        rows = torch.nested.nested_tensor([torch.ones(3, 8), torch.ones(5, 8)], layout=torch.jagged)
        assert functional.linear(rows, torch.ones(4, 8)).is_nested
