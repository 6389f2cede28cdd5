import warnings

import torch


def raises(kind, text, body):
    try:
        body()
    except kind as error:
        assert text in str(error), error
    else:
        raise AssertionError(text)


x = torch.zeros(3, 4, device="loom")
raises(RuntimeError, "mat1 and mat2 shapes cannot be multiplied (3x4 and 3x4)", lambda: x @ x)
raises(RuntimeError, "at least two devices, loom:0 and loom:1", lambda: x + x.to("loom:1"))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    assert x.add(1).sum().item() == 0
    assert not x.add(1).bool().any()
assert str(caught[0].message).startswith("reads a value of a device that computes nothing")
assert "Triggered" not in str(caught[0].message)
# A check that all elements pass is supposed to pass, in either spelling.
mask = torch.ones(2, 5, dtype=torch.bool, device="loom")
assert mask.all()
assert mask.sum() == mask.numel()
with torch.inference_mode():
    made = torch.ones(2, 5, dtype=torch.bool, device="loom")
    assert made.sum() == made.numel()
    assert made.all()
lengths = torch.ones(4, dtype=torch.int64, device="loom")
is_short = lengths.sum() == lengths.numel()
assert not is_short
is_smaller = mask.sum() == mask.numel() - 1
assert not is_smaller
assert torch.isfinite(x.add(1).sum())
assert not torch.isinf(x.sum()) and not torch.isnan(x.sum())
count = mask.sum()
count.add_(1)
is_still_the_sum = count == mask.numel()
assert not is_still_the_sum
assert caught[0].filename == raises.__code__.co_filename
assert x.cpu().shape == (3, 4)
square = x.new_zeros(3, 3)
assert torch.linalg.eigvals(square).shape == (3,)
assert torch.cholesky_inverse(square).shape == (3, 3)
