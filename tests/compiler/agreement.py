"""Real results beside those of fake tensors: torch.compile relies on sizes, strides and where results begin.

:class:`Agreement` runs each op that a program comes down to on fake tensors too, and keeps what differs.
:func:`owned` derives which ops have a kernel or a fake kernel of ours. :func:`check` runs programs that
reach all of them.
"""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import nn
from torch._subclasses.fake_tensor import (
    DataDependentOutputException,
    DynamicOutputShapeException,
    FakeTensorConverter,
    FakeTensorMode,
    UnsupportedOperatorException,
)
from torch.nn import functional as F  # noqa: N812
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves, tree_map_only

# What fake tensors cannot say; compiled programs leave such ops to eager mode.
UNKNOWN = (DataDependentOutputException, DynamicOutputShapeException, UnsupportedOperatorException)

# Results that PyTorch's fake kernels describe wrongly: by op and number. docs/upstream.md has them all.
DIFFERENT = {
    "aten::native_batch_norm 0": "the layout of a transposed input, on the CPU too",
    "aten::native_batch_norm 1": "statistics that evaluation mode does not keep; none is read",
    "aten::native_batch_norm 2": "as above",
    "aten::native_batch_norm_backward 0": "the layout of channels that come last, on the CPU too",
    "aten::channel_shuffle 0": "the layout of channels that come last, on the CPU too",
    "aten::mkldnn_rnn_layer 3": "what is kept for the gradient; compiled programs run cells instead",
    "aten::_native_multi_head_attention 1": "no weights are an empty tensor",
    "aten::_scaled_dot_product_fused_attention_overrideable_backward 3": "a gradient that was not asked for",
    "aten::_efficient_attention_backward 3": "no gradient is a tensor without dimensions",
}

# Ops of ours whose results cannot be compared with fake ones, or that programs do not call.
_PARTS = "PyTorch has no fake kernel for it; what it is made of is compared"
NOT_COMPARED = {
    "loom_numerics::tensor_core_matmul": "tensor_core() alone calls it: tests/numerics compares it",
    "aten::_cslt_compress": _PARTS,
    "aten::_sparse_semi_structured_apply": _PARTS,
    "aten::_sparse_semi_structured_apply_dense": _PARTS,
    "aten::_sparse_semi_structured_tile": _PARTS,
    "aten::_to_sparse_semi_structured": _PARTS,
    "aten::_convolution.deprecated": "a composite op: modes see its parts",
    "aten::_copy_from": "the other side of copy_, which is what programs call",
    "aten::_copy_from_and_resize": "the other side of copy_, which is what programs call",
    "aten::_efficientzerotensor": "autograd makes it; it has no memory",
    "aten::_foreach_addcdiv.Tensor": "PyTorch's fake kernel refuses its tensor of the host",
    "aten::_foreach_addcmul.Tensor": "PyTorch's fake kernel refuses its tensor of the host",
    "aten::_lazy_clone": "PyTorch has no fake kernel for it",
    "aten::_nested_view_from_buffer": "nested tensors are not compiled; jagged ones are plain tensors within",
    "aten::_pack_padded_sequence": "sizes depend on lengths",
    "aten::baddbmm.dtype": "PyTorch's decomposition takes the dtype for a factor",
    "aten::from_file": "a file has no fake contents",
    "aten::lstm.input": "a composite op: modes see its parts",
}

Call = Callable[[], Any]


class Agreement(TorchDispatchMode):
    """Within, each op with results on the device is compared with what fake tensors say of it.

    Attributes:
        seen: the ops of which results were compared.
        different: by op and number of a result, what both are.
    """

    def __init__(self) -> None:
        super().__init__()
        self.seen: set[str] = set()
        self.different: dict[str, str] = {}
        self._calls: set[Any] = set()
        self._fakes = FakeTensorMode(allow_non_fake_inputs=True)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        call = (func, *map(described, tree_leaves((args, kwargs))))
        if call in self._calls:
            return func(*args, **kwargs)
        self._calls.add(call)
        try:
            expected = self._said(func, args, kwargs)
        except UNKNOWN:
            return func(*args, **kwargs)
        real = func(*args, **kwargs)
        self.seen.add(func.name())
        for number, results in enumerate(zip(tree_leaves(expected), tree_leaves(real), strict=True)):
            fake, value = map(described, results)
            if (
                fake != value
                and isinstance(results[1], (torch.Tensor, type(None)))
                and not is_sparse(results[1])
            ):
                self.different.setdefault(f"{func.name()} {number}", f"fake {fake}, real {value}")
        return real

    def _said(self, func: Any, args: Any, kwargs: Any) -> Any:
        self._fakes.fake_tensor_converter = FakeTensorConverter()  # a tensor may have another size by now
        with self._fakes:
            fake_args, fake_kwargs = tree_map_only(torch.Tensor, self._fakes.from_tensor, (args, kwargs))
            return func(*fake_args, **fake_kwargs)


def is_sparse(value: Any) -> bool:
    return isinstance(value, torch.Tensor) and value.layout != torch.strided


def described(value: Any) -> Any:
    """What compiled programs rely on: strides of dimensions of size 1, and of what is empty, mean nothing."""
    if isinstance(value, (torch.SymInt, torch.SymFloat)):
        return str(value)
    if not isinstance(value, torch.Tensor) or is_sparse(value):
        return repr(value) if not isinstance(value, torch.Tensor) else (value.layout, value.shape)
    strides = tuple(s for s, n in zip(value.stride(), value.shape, strict=True) if n > 1)
    return (
        *(tuple(value.shape), () if value.numel() == 0 else strides, value.storage_offset()),
        *(value.dtype, value.device.type),
    )


def owned(name: str) -> set[str]:
    """Derive which ops have a kernel, or a fake kernel, of torch-loom's that says what their results are.

    That is: kernels of the device which are not the boxed one (it runs the engine's), fake kernels in C++ or
    in Python, and PyTorch's fake kernels that ask for the type of the device, which torch-loom answers.
    """
    from torch._subclasses.fake_impls import op_implementations_dict

    import torch_loom.numerics  # noqa: F401  # its ops exist once it is imported

    torch.get_device_module(name).init()  # most kernels are registered then
    key = "CUDA" if name == "cuda" else "PrivateUse1"
    kernels = {op for op in registered(key) if "(none)" not in registration(op, key) and makes_tensors(op)}
    fakes = {
        op for op in registered("Meta") if "csrc/torch/core/registration.cpp" in registration(op, "Meta")
    }
    replaced = {op.name() for op, run in op_implementations_dict.items() if hasattr(run, "_loom_original")}
    asked = {op for op in registered("Meta") if asks_for_device(op) and makes_tensors(op)}
    assert min(map(len, (kernels, fakes, replaced, asked))) > 3
    return kernels | fakes | replaced | asked


def registered(key: str) -> list[str]:
    names = torch._C._dispatch_get_registrations_for_dispatch_key(key)
    return [name for name in names if name.startswith(("aten::", "loom_numerics::"))]


def registration(op: str, key: str) -> str:
    """Return the line of the dispatcher on the op's kernel: where it was registered, and its signature."""
    lines = torch._C._dispatch_dump(op).splitlines()
    return next((line for line in lines if line.startswith(f"{key}:")), "")


def makes_tensors(op: str) -> bool:
    """Whether the op has results that are tensors and none of its operands."""
    results = torch._C._get_schema(*split(op)).returns
    new = [each for each in results if each.alias_info is None or not each.alias_info.is_write]
    return any("Tensor" in str(each.type) for each in new)


def asks_for_device(op: str) -> bool:
    name, overload = split(op)
    space, _, base = name.partition("::")
    overloaded = getattr(getattr(getattr(torch.ops, space), base), overload or "default")
    fake = overloaded.py_kernels.get(torch._C.DispatchKey.Meta)
    while hasattr(fake, "__wrapped__"):
        fake = fake.__wrapped__
    return "device_hint" in getattr(getattr(fake, "__code__", None), "co_names", ())


def split(op: str) -> tuple[str, str]:
    name, _, overload = op.partition(".")
    return name, overload


def train(model: nn.Module, *inputs: torch.Tensor) -> None:
    """Forward, backward and a step of two kinds of optimizer."""
    model.train()
    for optimizer in (
        torch.optim.AdamW(model.parameters(), lr=1e-3),
        torch.optim.SGD(model.parameters(), lr=1e-3, momentum=0.9, fused=True),
    ):
        differentiate(model(*inputs))
        optimizer.step()
        optimizer.zero_grad()


def evaluate(model: nn.Module, *inputs: torch.Tensor) -> None:
    model.eval()
    with torch.no_grad():
        model(*inputs)


def differentiate(outputs: Any) -> None:
    tensors = [each for each in tree_leaves(outputs) if isinstance(each, torch.Tensor) and each.requires_grad]
    if tensors:
        sum(each.float().square().mean() for each in tensors).backward()  # type: ignore[union-attr]


def models(device: str) -> Iterator[tuple[nn.Module, tuple[torch.Tensor, ...]]]:
    """Yield layers that have kernels of their own on devices, each with its inputs."""

    def made(model: nn.Module, *inputs: torch.Tensor) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
        return model.to(device), tuple(value.to(device) for value in inputs)

    words = torch.randn(3, 10, 64)
    layer = nn.TransformerEncoderLayer(64, 4, 128, batch_first=True)
    yield made(nn.TransformerEncoder(layer, 1), words)
    yield made(nn.TransformerEncoderLayer(64, 4, 128), words)
    decoder = nn.TransformerDecoderLayer(64, 4, 128, batch_first=True, norm_first=True)
    yield made(decoder, words, words[:, :7])
    yield made(nn.MultiheadAttention(64, 8, dropout=0.1, batch_first=True), words, words, words)
    yield made(nn.LSTM(64, 32, 2, batch_first=True, dropout=0.2, bidirectional=True), words)
    yield made(nn.LSTMCell(64, 32), words[0])
    yield made(nn.GRU(64, 32), words)
    yield made(nn.RNN(64, 32), words)
    norms = [nn.LayerNorm(64), nn.RMSNorm(64), nn.Dropout(0.3), nn.Linear(64, 64), nn.AlphaDropout(0.2)]
    yield made(nn.Sequential(*norms), words)
    image = torch.randn(2, 3, 12, 12)
    layers = [
        *(nn.Conv2d(3, 8, 3, padding=1), nn.BatchNorm2d(8), nn.GELU(), nn.MaxPool2d(2), nn.Dropout2d(0.1)),
        *(
            nn.Conv2d(8, 8, 3, groups=8),
            nn.GroupNorm(2, 8),
            nn.ConvTranspose2d(8, 4, 2),
            nn.InstanceNorm2d(4),
        ),
        *(nn.AdaptiveAvgPool2d(2), nn.Flatten(), nn.Linear(16, 5), nn.LogSoftmax(-1)),
    ]
    yield made(nn.Sequential(*layers), image)
    by_channels = nn.Sequential(
        nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.Dropout(0.5), nn.AvgPool2d(2)
    )
    last = torch.channels_last
    yield made(by_channels.to(memory_format=last), image.to(memory_format=last))
    yield made(nn.Embedding(20, 8, padding_idx=0), torch.arange(12).view(3, 4))
    yield made(nn.EmbeddingBag(20, 8, mode="mean"), torch.arange(12).view(3, 4))


def laid_out(device: str) -> Iterator[torch.Tensor]:
    """Yield tensors [2, 4, 6, 8] that lie in memory in different ways, the last one not at the beginning."""
    tensor = torch.rand(2, 4, 6, 8, device=device) + 0.1
    yield tensor
    yield tensor.to(memory_format=torch.channels_last)
    yield tensor.transpose(1, 2).contiguous().transpose(1, 2)
    yield torch.rand(3, 5, 8, 8, device=device)[1:, 1:, :, :6].mT


ELEMENTWISE: tuple[Callable[[torch.Tensor], Any], ...] = (
    *(torch.exp, torch.neg, torch.relu, torch.rsqrt, torch.sqrt, torch.sigmoid, torch.tanh, F.silu, F.gelu),
    *(torch.sum, torch.mean, torch.clone, lambda x: torch.native_dropout(x, 0.4, True)),
    *(lambda x: x + x.mT.mT, lambda x: x - 2 * x, lambda x: x * x, lambda x: x / x, lambda x: x**2),
    *(lambda x: x.sum(1), lambda x: x.mean((0, 3), keepdim=True), lambda x: x.argmax(2), lambda x: x == 1),
    *(lambda x: x != 1, lambda x: x == x, lambda x: torch.where(x > 0.5, x, 0 * x)),
    *(lambda x: torch.softmax(x, -1), lambda x: torch.softmax(x, 1), lambda x: torch.log_softmax(x, 1)),
    *(lambda x: torch.cat([x, x], 1), lambda x: x.index_select(1, torch.tensor([2, 0], device=x.device))),
    *(lambda x: x.gather(1, torch.ones(2, 2, 3, 4, dtype=torch.int64, device=x.device)),),
    *(lambda x: F.layer_norm(x, (8,)), lambda x: F.rms_norm(x, (8,)), lambda x: F.group_norm(x, 2)),
    *(lambda x: F.dropout(x, 0.2), lambda x: F.batch_norm(x, None, None, training=True)),
    *(lambda x: F.conv2d(x, x[:, :, :3, :3]), lambda x: x.unfold(3, 4, 2), lambda x: x.permute(3, 0, 2, 1)),
    *(lambda x: x.as_strided((2, 3), (5, 1), 7), lambda x: x @ x.mT, lambda x: x[0] @ x[1].mT),
    *(lambda x: x[0, 0] @ x[1, 1].mT, lambda x: torch.addmm(x[0, 0, :, 0], x[0, 0], x[1, 0].mT)),
    *(lambda x: torch.baddbmm(x[0, :, :, :6], x[0], x[1].mT), lambda x: F.linear(x, x[0, 0])),
    *(lambda x: F.nll_loss(x[0, 0], torch.arange(6, device=x.device)), lambda x: F.channel_shuffle(x, 2)),
    *(
        lambda x: torch.linalg.svd(x, full_matrices=False),
        lambda x: torch.fft.fft(x),
        lambda x: torch.fft.rfft(x),
    ),
    *(lambda x: torch.fft.irfft(torch.complex(x, x)), lambda x: x.median(2), lambda x: x.nanmedian(2)),
)


def calls(device: str) -> Iterator[Call]:
    """Yield calls of ops that layers do not make, or not of each kind of tensor."""
    for tensor, call in itertools.product(laid_out(device), ELEMENTWISE):
        yield lambda call=call, tensor=tensor: call(tensor.detach().requires_grad_())
    aten: Any = torch.ops.aten
    x = torch.rand(2, 4, 6, 8, device=device)
    matrix, halves = x[0, 0], x[0].bfloat16()
    image, kernel = torch.rand(1, 2, 6, 6, device=device), torch.rand(2, 2, 3, 3, device=device)
    convolution = (image, kernel, None, [1, 1], [0, 0], [1, 1], False, [0, 0], 1)
    yield lambda: aten._convolution.default(*convolution, False, False, True, True)
    yield lambda: torch.empty(2, 3, device=device)
    yield lambda: torch.empty_strided((2, 3), (1, 2), device=device)
    yield lambda: torch.kaiser_window(5, device=device)
    yield lambda: torch.kaiser_window(5, False, device=device)
    yield lambda: torch.kaiser_window(5, True, 3.0, device=device)
    yield lambda: aten._reshape_alias(x, [8, 48], [48, 1])
    yield lambda: torch.view_as_real(torch.view_as_complex(x[..., :2].contiguous()))
    yield lambda: aten.linear_backward(x, x[..., :6], matrix, [True, True, True])
    yield lambda: torch.softmax(x.half(), -1, dtype=torch.float32)
    yield lambda: torch.linalg.eig(x[..., :6])
    yield lambda: torch.histc(x)
    yield lambda: aten.mode(x, 2)
    yield lambda: aten.nonzero_static(x > 0.5, size=5)
    yield lambda: torch._foreach_addcdiv([x], [x], [x])
    yield lambda: torch._foreach_sqrt([x, x.mT])
    yield lambda: torch.mm(halves[0], halves[1].mT, out_dtype=torch.float32)
    yield lambda: torch.bmm(halves, halves.mT, out_dtype=torch.float32)
    yield lambda: torch.addmm(halves[0, 0, :6], halves[0], halves[1].mT, out_dtype=torch.float32)
    yield lambda: F.embedding_bag(torch.arange(6, device=device).view(2, 3), matrix, mode="max")
    yield lambda: differentiate(nn.GRUCell(8, 4, device=device)(matrix))
    yield lambda: differentiate(nn.LSTMCell(8, 4, device=device)(matrix))
    packed = torch.randint(0, 256, (16, 32), device=device, dtype=torch.uint8)
    scales = torch.rand(2, 16, 2, device=device).bfloat16()
    yield lambda: aten._weight_int4pack_mm(
        torch.rand(3, 64, device=device).bfloat16(), aten._convert_weight_to_int4pack(packed, 2), 32, scales
    )
    yield from steps(x)
    yield from parts_of_batches(x)
    yield from numerics(x)


def steps(x: torch.Tensor) -> Iterator[Call]:
    """Yield steps of fused optimizers."""
    one = torch.ones((), device=x.device)
    decayed = {"weight_decay": 0.1, "eps": 1e-8, "maximize": False}
    moments = {"beta1": 0.9, "beta2": 0.99, "amsgrad": False, **decayed}
    velocity = {"weight_decay": 0.1, "momentum": 0.9, "dampening": 0.0, "nesterov": False, "maximize": False}
    for rate in (0.1, one * 0.1):
        for step in (torch._fused_adam_, torch._fused_adamw_):
            yield lambda step=step, rate=rate: step([x], [x], [x], [x], [], [one], lr=rate, **moments)
        yield lambda rate=rate: torch._fused_sgd_([x], [x], [x], lr=rate, is_first_step=True, **velocity)
        yield lambda rate=rate: torch._fused_adagrad_([x], [x], [x], [one], lr=rate, lr_decay=0.1, **decayed)


def parts_of_batches(x: torch.Tensor) -> Iterator[Call]:
    """Yield what SyncBatchNorm calls."""
    ones = torch.ones(4, device=x.device)
    one, rows = ones[0], ones.expand(2, 4).contiguous()
    for part in (x, x.to(memory_format=torch.channels_last)):
        yield lambda part=part: torch.batch_norm_stats(part, 1e-5)
        yield lambda part=part: torch.batch_norm_gather_stats(part, rows, rows, None, None, 0.1, 1e-5, 2)
        yield lambda part=part: torch.batch_norm_gather_stats_with_counts(
            part, rows, rows, None, None, 0.1, 1e-5, torch.ones(2, device=x.device)
        )
        yield lambda part=part: torch.batch_norm_elemt(part, ones, ones, ones, ones, 1e-5)
        yield lambda part=part: torch.batch_norm_backward_reduce(
            part, part, ones, ones, ones, True, True, True
        )
        yield lambda part=part: torch.batch_norm_backward_elemt(
            part, part, ones, ones, ones, ones, ones, one.expand(2).int()
        )


def numerics(x: torch.Tensor) -> Iterator[Call]:
    """Yield ops of the numerics, of tensors that do not lie in a row."""
    from torch_loom.numerics import DataFormat, MathFidelity

    ops: Any = torch.ops.loom_numerics
    block, fidelity, wide = DataFormat.Bfp8_b.value, MathFidelity.HiFi2.value, DataFormat.Float16_b.value
    kernel = x[:, :, :3, :3]
    convolution = (x.mT, kernel, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, fidelity, wide)
    for tensor in (x, x.mT):
        yield lambda tensor=tensor: ops.quantize(tensor, block)
        yield lambda tensor=tensor: ops.quantize_(tensor, block)
        yield lambda tensor=tensor: ops.quantize_counted(tensor, block)
        yield lambda tensor=tensor: ops.quantize.out(tensor, block, out=torch.empty_like(x))
        yield lambda tensor=tensor: ops.renew_(
            torch.zeros_like(tensor), torch.zeros(1, dtype=torch.int64, device=x.device), tensor, block
        )
        yield lambda tensor=tensor: ops.unpack(ops.pack(tensor, block), block, list(tensor.shape))
        yield lambda tensor=tensor: ops.operand(tensor, 1, fidelity)
        yield lambda tensor=tensor: ops.elementwise(tensor, tensor, 0, fidelity, wide, 1)
        yield lambda tensor=tensor: ops.function(tensor, 4, wide, 1)
        yield lambda tensor=tensor: ops.matmul(tensor, tensor.mT, fidelity, wide)
        yield lambda tensor=tensor: ops.linear(tensor, tensor[0, 0], None, fidelity, wide)
    yield lambda: ops.matmul.out(x, x.mT, fidelity, wide, out=torch.empty(2, 4, 6, 6, device=x.device))
    yield lambda: ops.convolution(x.mT, kernel, None, *convolution[2:])
    yield lambda: ops.convolution_backward(
        torch.rand(2, 2, 8, 6, device=x.device), *convolution, [True, True]
    )


def attentions(device: str) -> Iterator[Call]:
    """Yield calls of attention: layouts, masks, dtypes, sizes, groups of heads, dropout."""

    def heads(*sizes: int, by_time: bool = False, dtype: torch.dtype = torch.float32) -> torch.Tensor:
        tensor = torch.randn(*sizes, device=device, dtype=dtype)
        return (tensor.transpose(1, 2) if by_time else tensor).requires_grad_()

    def call(query: Any, key: Any, value: Any, **options: Any) -> Call:
        return lambda: F.scaled_dot_product_attention(query, key, value, **options)

    for dtype in (torch.float32, torch.bfloat16):
        plain = [heads(2, 4, 6, 16, dtype=dtype) for _ in range(3)]
        yield call(*plain)
        yield call(*plain, dropout_p=0.25)
        yield call(*plain, dropout_p=0.25, is_causal=True)
        yield call(*(heads(2, 6, 4, 16, by_time=True, dtype=dtype) for _ in range(3)), dropout_p=0.1)
        mask = torch.randn(2, 4, 6, 6, device=device, dtype=dtype)
        yield call(*plain, attn_mask=mask)
        yield call(*plain, attn_mask=mask.clone().requires_grad_())
        yield call(*plain, attn_mask=mask[:, :1].clone().requires_grad_(), dropout_p=0.1)
        yield call(*plain, attn_mask=mask > -1, dropout_p=0.1)
        yield call(plain[0], heads(2, 4, 9, 16, dtype=dtype), heads(2, 4, 9, 16, dtype=dtype))
        groups = [heads(2, 2, 6, 16, dtype=dtype) for _ in range(2)]
        yield call(plain[0], *groups, enable_gqa=True, dropout_p=0.1)
        yield call(*(heads(0, 4, 6, 16, dtype=dtype) for _ in range(3)))
    aten: Any = torch.ops.aten
    halves = [heads(2, 4, 6, 16, dtype=torch.bfloat16) for _ in range(3)]
    for probability, is_causal in ((0.0, True), (0.1, False)):
        options = probability, is_causal
        yield lambda options=options: torch._scaled_dot_product_flash_attention(*halves, *options)
        yield lambda options=options: aten._scaled_dot_product_cudnn_attention(*halves, None, True, *options)
        yield lambda options=options: torch._scaled_dot_product_efficient_attention(
            *halves, None, True, *options
        )
        yield lambda options=options: aten._efficient_attention_forward(
            *halves, None, None, None, None, None, options[0], int(options[1]), True
        )
        yield lambda options=options: aten._scaled_dot_product_fused_attention_overrideable(
            *halves, None, *options
        )


def packed_attentions(device: str) -> Iterator[Call]:
    """Yield attention of packed sequences."""
    aten: Any = torch.ops.aten
    rows = [torch.randn(14, 4, 16, device=device, dtype=torch.bfloat16, requires_grad=True) for _ in range(3)]
    out, *plain = (torch.empty_like(rows[0]), *(row.detach() for row in rows))
    starts = torch.tensor([0, 5, 6, 14], device=device, dtype=torch.int32)
    for probability in (0.0, 0.1):
        packed = starts, starts, 8, 8, probability, True, False
        yield lambda packed=packed: aten._flash_attention_forward(*rows, *packed)
    unpacked = (None, None, 14, 14, 0.0, False, False)
    yield lambda: aten._flash_attention_forward(*(row.unsqueeze(0) for row in rows), *unpacked)
    yield lambda: aten._flash_attention_forward_no_dropout_inplace(
        out, *plain, starts, starts, 8, 8, *unpacked[4:]
    )
    batch = [row.unsqueeze(0) for row in rows]
    yield lambda: aten._efficient_attention_forward(*batch, None, starts, starts, 8, 8, 0.1, 1, True)


def grouped_products(device: str) -> Iterator[Call]:
    """Yield products of groups of matrices, in bfloat16 and in float8."""
    from torch.nn.functional import ScalingType

    float8, row = torch.float8_e4m3fn, ScalingType.RowWise
    left = torch.randn(48, 32, device=device).to(float8)
    right = torch.randn(3, 64, 32, device=device).to(float8).mT
    scales = torch.rand(48, device=device), torch.rand(3, 64, device=device)
    ends = torch.tensor([16, 16, 48], device=device, dtype=torch.int32)
    yield lambda: torch._scaled_grouped_mm(left, right, *scales, offs=ends, out_dtype=torch.bfloat16)
    yield lambda: F.scaled_grouped_mm(left, right, scales[0], row, scales[1], row, offs=ends)
    rows = torch.randn(48, 32, device=device, dtype=torch.bfloat16, requires_grad=True)
    weights = torch.randn(3, 32, 64, device=device, dtype=torch.bfloat16, requires_grad=True)
    yield lambda: F.grouped_mm(rows, weights, offs=ends)
    yield lambda: F.grouped_mm(weights.mT, weights)


def semi_structured(device: str) -> Iterator[Call]:
    """Yield products with 2:4 matrices and what makes these; the parts of ops without a fake kernel.

    The last device runs them: GPUs later than Ampere refuse CUTLASS's.
    """
    last = torch.device(device, torch.get_device_module(device).device_count() - 1)
    aten: Any = torch.ops.aten
    parts: Any = torch.ops.loom_fused
    for dtype in (torch.float16, torch.bfloat16, torch.int8):
        dense = (torch.arange(256, device=last) % 4 < 2).to(dtype).expand(128, 256).contiguous()
        columns = torch.ones(64, 256, device=last, dtype=dtype).t()
        kept, numbers = parts._to_sparse_semi_structured(dense)
        compressed = parts._cslt_compress(dense)
        for wide in (None, *([torch.int32] if dtype is torch.int8 else [])):
            bias = torch.ones(128, device=last, dtype=wide or dtype)
            for op, operands in (
                (aten._sparse_semi_structured_mm, (kept, numbers, columns)),
                (aten._sparse_semi_structured_addmm, (bias, kept, numbers, columns)),
                (aten._sparse_semi_structured_linear, (columns.t(), kept, numbers)),
                (aten._cslt_sparse_mm, (compressed, columns)),
            ):
                yield functools.partial(op, *operands, out_dtype=wide)
            yield functools.partial(
                aten._cslt_sparse_mm, compressed, columns, out_dtype=wide, transpose_result=True
            )
        if dtype is not torch.int8:
            *_, masks = parts._sparse_semi_structured_tile(dense)
            yield functools.partial(parts._sparse_semi_structured_tile, dense, "", False)
            yield functools.partial(parts._sparse_semi_structured_apply, dense, masks)
            yield functools.partial(parts._sparse_semi_structured_apply_dense, dense, masks)


def check(device: str) -> None:
    """Raise where a result on the device is not what fake tensors say, or an op of ours was left out."""
    torch.manual_seed(0)
    with Agreement() as agreement:
        for model, inputs in models(device):
            train(model, *inputs)
            evaluate(model, *inputs)
        for programs in (calls, attentions, packed_attentions, grouped_products, semi_structured):
            for program in programs(device):
                differentiate(program())
    unexpected = {op: words for op, words in agreement.different.items() if op not in DIFFERENT}
    assert not unexpected, unexpected
    missing = owned(device) - agreement.seen
    assert missing == set(NOT_COMPARED), missing ^ set(NOT_COMPARED)
