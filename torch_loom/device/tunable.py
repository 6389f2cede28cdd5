"""``torch.cuda.tunable``: every function raises NotApplicableError, as there are no GEMM libraries to tune."""

from torch_loom.device._not_applicable import functions

globals().update(functions("tunable"))

__all__ = sorted(functions("tunable"))
