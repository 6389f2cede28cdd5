"""Attention of nested tensors under CUDA's name: the fused kernels take them, packed, as one command."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "1GiB"}

OPERANDS = """
import torch
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention as attention

LENGTHS = [3, 5, 2]
FLASH, EFFICIENT = SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION

def sequences(seed, dtype, heads=4, lengths=LENGTHS):
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(rows, heads, 8, generator=generator).to("cuda", dtype) for rows in lengths]

def nested(values, layout):
    made = torch.nested.nested_tensor(values, layout=layout).transpose(1, 2)
    return made.detach().requires_grad_()

def expected(operands, is_causal=False):
    with sdpa_kernel(SDPBackend.MATH):
        return [
            attention(*(x.float().transpose(0, 1)[None] for x in each), is_causal=is_causal)[0]
            for each in zip(*operands, strict=True)
        ]

def check(outputs, wanted):
    for output, reference in zip(outputs, wanted, strict=True):
        torch.testing.assert_close(output.float(), reference, atol=4e-3, rtol=4e-3)
"""


@pytest.mark.slow
def test_output_and_gradients(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
for layout in (torch.strided, torch.jagged):
    for kernel, dtype in ((FLASH, torch.float16), (EFFICIENT, torch.float16), (EFFICIENT, torch.float32)):
        for is_causal in (False, True):
            values = [sequences(seed, dtype) for seed in range(3)]
            operands = [nested(each, layout) for each in values]
            trains = layout == torch.jagged or kernel == FLASH  # as CUDA's kernels
            with sdpa_kernel(kernel), torch.set_grad_enabled(trains):
                output = attention(*operands, is_causal=is_causal)
            assert output.is_nested and output.dtype == dtype
            check(output.unbind(), expected(values, is_causal))
            if not trains:
                continue
            sum(x.float().square().sum() for x in output.unbind()).backward()
            leaves = [[x.float().requires_grad_() for x in each] for each in values]
            sum(x.square().sum() for x in expected(leaves, is_causal)).backward()
            for operand, leaf in zip(operands, leaves, strict=True):
                found = [x.transpose(0, 1).float() for x in operand.grad.unbind()]
                for gradient, reference in zip(found, leaf, strict=True):
                    torch.testing.assert_close(gradient, reference.grad, atol=2e-2, rtol=2e-2)
""",
        env=NAME,
    )


def test_a_part_of_a_nested_tensor(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
values = [sequences(seed, torch.float16) for seed in range(3)]
parts = [torch.nested.nested_tensor(each).narrow(0, 0, 2).transpose(1, 2) for each in values]
with sdpa_kernel(FLASH):
    output = attention(*parts)
check(output.unbind(), expected([each[:2] for each in values]))
""",
        env=NAME,
    )


@pytest.mark.slow
def test_a_batch_of_one_and_one_head_stand_for_all(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
query = sequences(0, torch.float32)
key, value = sequences(1, torch.float32, 1, [4]), sequences(2, torch.float32, 1, [4])
one = [torch.stack(x).transpose(1, 2) for x in (key, value)]
with sdpa_kernel(EFFICIENT), torch.no_grad():
    output = attention(nested(query, torch.strided), *one)
all_heads = [[x[0].expand(-1, 4, -1)] * 3 for x in (key, value)]
check(output.unbind(), expected([query, *all_heads]))
""",
        env=NAME,
    )


def test_the_choice_is_cudas(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
import warnings

def chosen(*operands):
    return SDPBackend(torch._fused_sdp_choice(*operands))

def made(dtype, grad, **options):
    values = [sequences(seed, dtype, **options) for seed in range(3)]
    return [nested(each, torch.strided).requires_grad_(grad) for each in values]

assert chosen(*made(torch.float16, True)) == FLASH
assert chosen(*made(torch.float32, False)) == EFFICIENT
assert chosen(*made(torch.float32, True)) == SDPBackend.MATH
assert chosen(*made(torch.float16, False, lengths=[3, 0])) == SDPBackend.MATH
with warnings.catch_warnings(record=True) as told, sdpa_kernel(EFFICIENT):
    warnings.simplefilter("always")
    try:
        attention(*made(torch.float32, True))
        raise AssertionError("no kernel trains these")
    except RuntimeError as error:
        assert "No available kernel" in str(error), error
assert any("doesn't support training with NT inputs" in str(each.message) for each in told)
""",
        env=NAME,
    )


def test_one_command(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
from torch.profiler import profile, ProfilerActivity

operands = [nested(sequences(seed, torch.float16), torch.strided) for seed in range(3)]
with profile(activities=[ProfilerActivity.CUDA]) as profiler, torch.no_grad():
    attention(*operands)
kernels = [e.name for e in profiler.events() if "attention" in e.name]
assert len(kernels) == 1, kernels
""",
        env=NAME,
    )


def test_the_mask_of_dropout(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
rows, dropout = 40, 0.3
query, key = (torch.randn(2, 3, rows, 8, device="cuda", dtype=torch.float16) for _ in range(2))
value = torch.eye(rows, device="cuda", dtype=torch.float16).expand(2, 3, rows, rows)
flash = torch.ops.aten._scaled_dot_product_flash_attention
key8, value8 = key, value[..., :8].contiguous()
output, *_, signed = flash(query, key8, value8, dropout, False, True)
assert signed.shape == (2, 3, 128, 128) and signed.dtype == torch.float16
kept = signed[:, :, :rows, :rows] >= 0
scores = (query.float() @ key.float().mT / 8**0.5).softmax(-1)
wanted = (scores * kept / (1 - dropout))[..., :8]
torch.testing.assert_close(output.float(), wanted, atol=2e-3, rtol=2e-2)
assert abs(kept.float().mean() - (1 - dropout)) < 0.02

single = [x.float() for x in (query, key, value8)]
output, _, seed, offset = torch.ops.aten._scaled_dot_product_efficient_attention(
    *single, None, True, dropout, False
)
numbers = torch.empty(2, 3, rows, rows, device="cuda")
torch._fill_mem_eff_dropout_mask_(numbers, dropout, seed, offset)
wanted = (scores * (numbers > dropout) / (1 - dropout))[..., :8]
torch.testing.assert_close(output, wanted, atol=1e-5, rtol=1e-4)

operands = [nested(sequences(seed, torch.float16), torch.strided).detach() for seed in range(3)]
output, *_, signed = flash(*operands, dropout, False, True)
assert signed.shape == (3, 4, 128, 128)
for i, (q, k, v, found) in enumerate(zip(*(x.unbind() for x in (*operands, output)), strict=True)):
    kept = signed[i, :, : q.size(1), : k.size(1)] >= 0
    weights = (q.float() @ k.float().mT / 8**0.5).softmax(-1) * kept / (1 - dropout)
    torch.testing.assert_close(found.float(), weights @ v.float(), atol=4e-3, rtol=4e-3)
""",
        env=NAME,
    )


@pytest.mark.slow
def test_what_does_not_fit_is_refused(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
flash = torch.ops.aten._scaled_dot_product_flash_attention
efficient = torch.ops.aten._scaled_dot_product_efficient_attention

def made(dtype=torch.float16, **options):
    return nested(sequences(0, dtype, **options), torch.strided).detach()

query, double = made(), made(torch.float64)
two, few = made(lengths=[3, 5]), made(heads=2)
dense = torch.ones(1, 2, 6, 16, device="cuda")
mask = torch.ones(2, 2, 4, 4, device="cuda", dtype=torch.float16)
for words, call in (
    ("2 sequences of 4 heads do not fit 3 of 4", lambda: flash(query, two, two)),
    ("3 sequences of 2 heads do not fit 3 of 4", lambda: flash(query, few, few)),
    ("only support fp16 and bf16", lambda: flash(double, double, double)),
    ("only support fp16 and bf16", lambda: flash(dense, dense, dense)),
    ("Only fp32, half & bf16 supported", lambda: efficient(double, double, double, None, False)),
    ("Only fp32, half & bf16 supported", lambda: efficient(*[dense.double()] * 3, None, False)),
    ("contiguous mask", lambda: torch._fill_mem_eff_dropout_mask_(mask, 0.5, 1, 0)),
):
    try:
        call()
        raise AssertionError(words)
    except RuntimeError as error:
        assert words in str(error), error
query, few = (x.detach().requires_grad_() for x in (query, made(heads=1)))
try:
    flash(query, few, few)[0].backward(query.detach())
    raise AssertionError("gradients of keys that stand for others")
except RuntimeError as error:
    assert "3 of 4, got 3 of 1" in str(error), error
none = made(heads=0)
assert flash(none, none, none, 0.5, False, True)[-1].numel() == 0
""",
        env=NAME,
    )


@pytest.mark.slow
def test_the_efficient_kernel_by_name(warm_python: PythonRunner) -> None:
    warm_python(
        OPERANDS
        + """
efficient = torch.ops.aten._efficient_attention_forward
values = [sequences(seed, torch.float32) for seed in range(3)]
packed = [torch.cat(each)[None] for each in values]
starts = torch.tensor([0, 3, 8, 10], dtype=torch.int32, device="cuda")
output, sums, *_, max_q, max_k = efficient(*packed, None, starts, starts, 5, 5, 0.0, 1, True)
assert output.shape == packed[0].shape and sums.shape == (3, 4, 32) and (max_q, max_k) == (5, 5)
wanted = torch.cat([x.transpose(0, 1) for x in expected(values, is_causal=True)])
torch.testing.assert_close(output[0], wanted, atol=1e-5, rtol=1e-5)

dense = [torch.randn(2, 6, 4, 8, device="cuda") for _ in range(3)]
output = efficient(*dense, None, None, None, None, None, 0.0, 1, window_size=2)[0]
place = torch.arange(6, device="cuda")
distance = place[:, None] - place
query, key, value = (x.transpose(1, 2) for x in dense)
with sdpa_kernel(SDPBackend.MATH):
    wanted = attention(query, key, value, attn_mask=(distance >= 0) & (distance < 2))
torch.testing.assert_close(output.transpose(1, 2), wanted, atol=1e-5, rtol=1e-5)
for arguments, words in (
    ((*dense, None, starts, None, 5, 5, 0.0, 0), "must be given together"),
    ((*dense, None, starts, starts, 5, 5, 0.0, 0), "a batch of 1, got 2"),
    ((*packed, None, starts, starts, None, None, 0.0, 0), "max_seqlen_q must be given"),
    ((*packed, None, starts, starts[:2], 5, 5, 0.0, 0), "3 sequences of queries and 1 of keys"),
):
    try:
        efficient(*arguments)
        raise AssertionError(words)
    except RuntimeError as error:
        assert words in str(error), error
short = torch.ones(2, dtype=torch.int32, device="cuda")
try:
    efficient(*packed, None, starts, starts, 5, 5, 0.0, 0, seqlen_k=short)
    raise AssertionError("two lengths of three sequences")
except RuntimeError as error:
    assert "3 sequences, but lengths of the keys of 2" in str(error), error
""",
        env=NAME,
    )
