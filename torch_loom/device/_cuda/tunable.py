"""``torch.cuda.tunable``: every function raises NotApplicableError, as there is no GEMM library to tune."""

from torch_loom.device._cuda.not_applicable import functions

globals().update(functions("tunable"))

__all__ = sorted(functions("tunable"))
