"""What connects a stage while its pipeline runs."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch

from torch_loom.pipeline.channel import Channel, Writer
from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.transfer import Parcel


@dataclass(frozen=True)
class Feed:
    """What one micro-batch brings to a stage: tensors in order, or by name. ``None`` as parcel ends a run."""

    parcel: Parcel | None
    names: tuple[str, ...] | None = None


END = Feed(None)  # passed on from stage to stage when a run without count is ended


@dataclass
class Links:
    """What connects a stage while its pipeline runs."""

    inputs: Channel[Feed]
    targets: Channel[Feed]
    lifeline: Lifeline
    forward: Writer[Feed] | None = None
    """To the next stage; None for the last."""
    gradients: Channel[Parcel] | None = None
    """From the next stage; None for the last."""
    backward: Writer[Parcel] | None = None
    """To the stage before; None for the first."""
    on_output: Callable[[tuple[torch.Tensor, ...]], None] | None = None
    on_loss: Callable[[tuple[torch.Tensor, ...]], None] | None = None
    on_checkpoint: Callable[[dict[str, torch.Tensor]], None] | None = None
    on_forward: Callable[[tuple[torch.Tensor, ...]], None] | None = None
    """Sees what goes to the next stage (PyBuda's d2d_fwd_queues)."""
    on_backward: Callable[[tuple[torch.Tensor | None, ...]], None] | None = None
    """Sees what goes to the stage before (d2d_bwd_queues)."""
    on_gradients: Callable[[tuple[torch.Tensor | None, ...]], None] | None = None
    """Sees incoming and outgoing gradients (the debug queue)."""
    on_done: Callable[[tuple[torch.Tensor, ...]], None] | None = None
    """Called after each forward of a micro-batch, with its losses in training."""
