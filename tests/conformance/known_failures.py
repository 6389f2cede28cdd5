"""What is known to fail, each with its reason, and what is left out. Both lists are meant to shrink.

`KNOWN_FAILURES` maps (op with variant, kind, dtype) to the reason. The dtype `"*"` stands for every dtype of
the op that has samples. A group listed here in which every sample passes fails the run: delete its line.

`EXCLUDED` maps an op to the reason why its samples are not run on the device at all; they are counted.
"""

from __future__ import annotations

from torch_loom import config

_PRECISION_BY_NAME = (
    "torch.nn.functional accumulates float16 and bfloat16 in float32 if the device is called cpu or cuda, "
    "and in the input's dtype on every other (LinearCrossEntropyOptions._resolve_auto_acc_dtype)"
)

_SUMS_OF_HALVES = (
    "the CPU sums the parts of a transposed convolution in half precision; GPUs and torch-loom sum in "
    "float32 and round once (torch_loom/cuda/widening.py)"
)
_TRANSPOSED: dict[tuple[str, str, str], str] = {
    ("nn.functional.conv_transpose1d", "forward", "float16"): _SUMS_OF_HALVES,
    **{
        (f"nn.functional.conv_transpose{dims}d", "forward", dtype): _SUMS_OF_HALVES
        for dims in (2, 3)
        for dtype in ("float16", "bfloat16")
    },
}

KNOWN_FAILURES: dict[tuple[str, str, str], str] = {
    **_TRANSPOSED,
    ("nn.functional.linear_cross_entropy.chunked", "forward", "bfloat16"): _PRECISION_BY_NAME,
    ("nn.functional.linear_cross_entropy.chunked", "forward", "float16"): _PRECISION_BY_NAME,
    ("nn.functional.linear_cross_entropy.chunked_none", "forward", "bfloat16"): _PRECISION_BY_NAME,
    ("nn.functional.linear_cross_entropy.chunked_none", "forward", "float16"): _PRECISION_BY_NAME,
}

_ONE_PRODUCT = (
    "PyTorch stacks the matrices of a list on devices called cuda, and returns slices of one product "
    "(torch/_native/ops/foreach_mm)"
)

# Under the name cuda, where not all of the failures above happen.
KNOWN_AS_CUDA: dict[tuple[str, str, str], str] = {
    **_TRANSPOSED,
    ("_foreach_mm", "forward", "bfloat16"): _ONE_PRODUCT,
    ("_foreach_mm", "forward", "float32"): _ONE_PRODUCT,
}

EXCLUDED: dict[str, str] = {}


def known() -> dict[tuple[str, str, str], str]:
    """Returns what is known to fail under the name that the devices have."""
    return KNOWN_AS_CUDA if config.device_name() == config.CUDA_NAME else KNOWN_FAILURES


def reason_for(op: str, kind: str, dtype: str) -> str | None:
    """Returns why failures of the group are expected, None if they are not."""
    listed = known()
    return listed.get((op, kind, dtype)) or listed.get((op, kind, "*"))
