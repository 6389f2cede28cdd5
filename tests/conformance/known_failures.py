"""What is known to fail, each with its reason, and what is left out. Both lists are meant to shrink.

`KNOWN_FAILURES` maps (op with variant, kind, dtype) to the reason. The dtype `"*"` stands for every dtype of
the op that has samples. A group listed here in which every sample passes fails the run: delete its line.

`EXCLUDED` maps an op to the reason why its samples are not run on the device at all; they are counted.
"""

from __future__ import annotations

_PRECISION_BY_NAME = (
    "torch.nn.functional accumulates float16 and bfloat16 in float32 if the device is called cpu or cuda, "
    "and in the input's dtype on every other (LinearCrossEntropyOptions._resolve_auto_acc_dtype)"
)

KNOWN_FAILURES: dict[tuple[str, str, str], str] = {
    ("nn.functional.linear_cross_entropy.chunked", "forward", "bfloat16"): _PRECISION_BY_NAME,
    ("nn.functional.linear_cross_entropy.chunked", "forward", "float16"): _PRECISION_BY_NAME,
    ("nn.functional.linear_cross_entropy.chunked_none", "forward", "bfloat16"): _PRECISION_BY_NAME,
    ("nn.functional.linear_cross_entropy.chunked_none", "forward", "float16"): _PRECISION_BY_NAME,
}

EXCLUDED: dict[str, str] = {}


def reason_for(op: str, kind: str, dtype: str) -> str | None:
    """Returns why failures of the group are expected, None if they are not."""
    return KNOWN_FAILURES.get((op, kind, dtype)) or KNOWN_FAILURES.get((op, kind, "*"))
