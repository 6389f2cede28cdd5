"""Triton's IR as data, and its reader. Neither torch nor triton is needed here."""

from torch_loom.kernels.ttir.reader import read as read

__all__ = ["read"]
