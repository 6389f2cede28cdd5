"""A stage in a process of its own on this machine: where a stage is given an ``mp_context``."""

from __future__ import annotations

from torch_loom.pipeline.process.stage import ProcessStage

__all__ = ["ProcessStage"]
