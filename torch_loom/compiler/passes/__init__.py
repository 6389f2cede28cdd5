"""The passes, each a function ``(graph, context) -> graph`` with one job, in the order in which they run."""

from torch_loom.compiler.passes.canonical import annotate_sources, canonicalise
from torch_loom.compiler.passes.consteval import evaluate_constants
from torch_loom.compiler.passes.formats import infer_formats, quantise
from torch_loom.compiler.passes.fuse import fuse
from torch_loom.compiler.passes.hosts import mark_host_ops
from torch_loom.compiler.passes.runner import Context, Pass, PassRecord, run
from torch_loom.compiler.passes.softmax import plain_softmax
from torch_loom.compiler.passes.split import split_products

__all__ = [
    "EAGER_PASSES",
    "FORMAT_PASSES",
    "PLAN_PASSES",
    "RUN_PASSES",
    "Context",
    "Pass",
    "PassRecord",
    "run",
]

EAGER_PASSES = (
    Pass("sources", annotate_sources),
    Pass("canonicalise", canonicalise),
    Pass("host ops", mark_host_ops),
)
"""What torch.compile's backend runs: nothing that changes numbers."""

FORMAT_PASSES = (
    *EAGER_PASSES,
    Pass("softmax", plain_softmax, changes_numbers=True),
    Pass("fuse", fuse),
    Pass("formats", infer_formats),
    Pass("quantise", quantise, changes_numbers=True),
)
"""What torch.compile's backend runs under ``numerics="formats"``: parameters stay inputs."""

_CONSTEVAL = Pass("consteval", evaluate_constants)
PLAN_PASSES = (*FORMAT_PASSES, _CONSTEVAL)
"""What ``torch_loom.compile`` runs before it plans."""

RUN_PASSES = (*FORMAT_PASSES, Pass("split", split_products), _CONSTEVAL)
"""What runs before a program that is run and not kept: the bits are those of PLAN_PASSES."""
