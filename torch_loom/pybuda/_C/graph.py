"""Enumerations of PyBuda's graphs."""

from torch_loom.pybuda.enums import NodeEpochType, RuntimeTensorTransformType

__all__ = ["NodeEpochType", "RuntimeTensorTransformType"]
