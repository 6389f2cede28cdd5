"""Running what is placed on devices."""

from torch_loom.pybuda.run import api

__all__ = ["api"]
