"""The passes, each a function ``(graph, context) -> graph`` with one job, in the one order in which they run."""

from torch_loom.compiler.passes.canonical import annotate_sources, canonicalise
from torch_loom.compiler.passes.hosts import mark_host_ops
from torch_loom.compiler.passes.runner import Context, Pass, PassRecord, run

__all__ = ["EAGER_PASSES", "Context", "Pass", "PassRecord", "run"]

EAGER_PASSES = (
    Pass("sources", annotate_sources),
    Pass("canonicalise", canonicalise),
    Pass("host ops", mark_host_ops),
)
"""What torch.compile's backend runs: nothing that changes numbers."""
