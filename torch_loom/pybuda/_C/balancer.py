"""Enumerations of PyBuda's balancer."""

from torch_loom.pybuda.enums import PolicyType

__all__ = ["PolicyType"]
