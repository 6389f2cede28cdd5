import torch

from tests.cuda.programs.nested_attention.operands import nested, sequences

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
