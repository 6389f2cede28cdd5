"""The C++ text of a kernel."""

from torch_loom.kernels.emission.kernel import emit as emit

__all__ = ["emit"]
