"""Which class of kernels a kernel of a card belongs to by its name, and a family of the cost model.

A step's time by class tells what its total does not: which families are off. The names are those of PyTorch,
cuDNN, cuBLAS and CUTLASS, as profilers show them; products and convolutions are one class, since kernels of
products make convolutions, too.
"""

from __future__ import annotations

import re
from collections.abc import Iterable

# The first class whose expression is found in the name in small letters.
_NAMES = (
    ("link", "memcpy (dtoh|htod)"),
    ("elementwise", "memcpy dtod"),
    ("layout", "nchwtonhwc|nhwctonchw"),
    ("batch_norm_backward", "bn_bw|batch_norm_backward"),
    ("batch_norm", "bn_fw|batch_norm"),
    ("depthwise_wgrad", "depthwise2d_grad_weight|depthwise.*wgrad|wgrad2d_(c1_k1|shmem|grouped)"),
    ("depthwise_dgrad", "depthwise2d_backward|depthwise.*dgrad|dgrad2d_(c1_k1|shmem|grouped)"),
    ("depthwise", "depthwise|conv2d_(c1_k1|grouped)"),
    ("foreach", "multi_tensor_apply"),
    ("attention_backward", "(fmha|flash|sdpa|attention).*(bwd|backward|bprop|dot_do|convert_dq)"),
    ("attention", "fmha|flash|sdpa|attentionkernel"),
    ("norm_backward", "layer_norm_grad|layer_norm_backward|layernormbackward|gammabeta|computeinternalgrad"),
    ("norm", "layer_norm|rowwisemoments|computefusedparams"),
    ("softmax_backward", "softmax.*backward"),
    ("softmax", "softmax"),
    ("dropout", "dropout"),
    ("pooling", "max_?pool|avg_?pool|averagepool"),
    (
        "products",
        "gemm|nvjet|gemv|splitk|xmma|wgrad|dgrad|fprop|convolve|cutlass|winograd|fft|cublas|cudnn|memset",
    ),
    ("reduce", "reduce_kernel"),
    ("concatenate", "catarray"),
    ("indexed", "index|gather|scatter|embedding|radix|sort|cub::|thrust|scan"),
)
_FAMILIES = (
    ("norm", "layer_norm"),
    ("norm_backward", "layer_norm_backward"),
    ("norm", "group_norm"),
    ("norm_backward", "group_norm_backward"),
    ("attention", "attention_masked"),
    ("softmax", "softmax_long"),
    ("attention", "attention_vector"),
    ("attention_backward", "attention_backward_vector"),
    ("pooling", "pooling_backward"),
    *(("indexed", each) for each in ("gather", "scatter", "sort", "scan")),
    *(("reduce", f"reduce_{each}") for each in ("all", "rows", "columns")),
    *(("products", each) for each in ("matmul", "matmul_vector", "batched_matmul_vector", "vector_product")),
)
_BY_FAMILY = {family: name for name, family in _FAMILIES}
_SAME = frozenset(name for name, _ in _NAMES)


def class_of(name: str) -> str:
    """Return the class of a kernel by its name: ``elementwise`` where no other fits."""
    small = name.lower()
    return next((found for found, pattern in _NAMES if re.search(pattern, small)), "elementwise")


def class_of_family(family: str) -> str:
    """Return the class of the kernels of a family of the cost model."""
    if family in _BY_FAMILY:
        return _BY_FAMILY[family]
    if family.startswith("convolution"):
        return "products"
    if family.startswith("batch_norm"):
        return "batch_norm_backward" if "backward" in family else "batch_norm"
    if family.startswith("depthwise"):
        return f"depthwise{next((role for role in ('_dgrad', '_wgrad') if role in family), '')}"
    return family if family in _SAME else "elementwise"


def by_class(kernels: Iterable[tuple[str, int, float]]) -> dict[str, list[float]]:
    """Return launches and microseconds of each class, from names, launches and microseconds of kernels."""
    found: dict[str, list[float]] = {}
    for name, launches, took in kernels:
        mine = found.setdefault(class_of(name), [0, 0.0])
        mine[0] += launches
        mine[1] = round(mine[1] + took, 1)
    return found
