"""What a kernel's ops become: which are computed in one loop, which blocks need memory, in which order."""

from torch_loom.kernels.lowering.plan import lower as lower

__all__ = ["lower"]
