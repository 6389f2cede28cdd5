"""Dry runs: a part of a program on devices that compute nothing, to see what it would need."""

from torch_loom.device.plan.figures import DryRunPlan, OpTime
from torch_loom.device.plan.runs import dry_run

__all__ = ["DryRunPlan", "OpTime", "dry_run"]
