"""TORCH_LOOM_MATMUL on a chip without a rule: products are refused, and not computed with other sums."""

from __future__ import annotations

import os
import warnings

with warnings.catch_warnings(record=True):
    warnings.simplefilter("always")
    import torch

from torch.nn import functional

from tests.raising import raises

chip = os.environ["TORCH_LOOM_CHIP"]
words = f"TORCH_LOOM_MATMUL='tensor_core': the matrix instructions of {chip}, which TORCH_LOOM_CHIP names,"
a = torch.ones(1, 2, 4, 16).half()
for product in (
    lambda: a[0, 0] @ a[0, 0].T,
    lambda: functional.scaled_dot_product_attention(a, a, a),
    lambda: functional.conv1d(a[0], a[0]),
):
    raises("ConfigurationError", words, product)
    with torch.inference_mode():
        raises("ConfigurationError", words, product)
assert torch.equal(a + a, a * 2)
print("products are refused")
