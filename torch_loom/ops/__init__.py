"""Every op declared once: how it costs, how exact it is, and what the runtime must know of it.

The entries stand in ``families``; what each field means, in ``model``. From them ``python -m tools.op_table``
writes what C++ needs (``csrc/torch/ops/generated``). An op without an entry costs the bytes it moves, and
nothing more is known of it. Imports nothing of PyTorch.
"""

from torch_loom.ops.model import FACTS, SHAPE_CLASSES, TOLERANCES, Call, Family, Tensor
from torch_loom.ops.nondeterminism import ALERTS, CASES, Alert
from torch_loom.ops.refusals import REFUSAL_CASES, REFUSALS, TAKES, Refusal
from torch_loom.ops.table import DEFAULT, FAMILIES, PUBLIC_NAMES, facts_of, family_of, has_entry
from torch_loom.ops.widening import WIDENED, WIDENED_SETS, WIDENED_SPARSE

__all__ = [
    "ALERTS",
    "CASES",
    "DEFAULT",
    "FACTS",
    "FAMILIES",
    "PUBLIC_NAMES",
    "REFUSALS",
    "REFUSAL_CASES",
    "SHAPE_CLASSES",
    "TAKES",
    "TOLERANCES",
    "WIDENED",
    "WIDENED_SETS",
    "WIDENED_SPARSE",
    "Alert",
    "Call",
    "Family",
    "Refusal",
    "Tensor",
    "facts_of",
    "family_of",
    "has_entry",
]
