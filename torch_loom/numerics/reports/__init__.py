"""Reports of what formats do to a model: :func:`compare` and :func:`search`."""

from torch_loom.numerics.reports.compare import Comparison, LayerErrors, compare
from torch_loom.numerics.reports.search import LayerChoice, Point, SearchResult, search
from torch_loom.numerics.reports.statistics import Errors, pcc

__all__ = [
    "Comparison",
    "Errors",
    "LayerChoice",
    "LayerErrors",
    "Point",
    "SearchResult",
    "compare",
    "pcc",
    "search",
]
