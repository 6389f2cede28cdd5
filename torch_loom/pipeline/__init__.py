"""Pipelines: stages on devices, bounded queues between them, micro-batches in flight (docs/pipelines.md).

>>> import queue, torch
>>> from torch_loom.pipeline import Pipeline, Stage
>>> outputs = queue.Queue()
>>> with Pipeline([Stage("a", torch.nn.Linear(4, 4), "loom:0"), Stage("b", torch.nn.ReLU())]) as pipeline:
...     pipeline.start(training=False, outputs=outputs)
...     pipeline.push(torch.ones(2, 4))
...     pipeline.forward(1)
...     outputs.get()[0].shape
torch.Size([2, 4])
"""

from torch_loom.errors import StageError
from torch_loom.pipeline.channel import Channel
from torch_loom.pipeline.commands import Command, CommandType
from torch_loom.pipeline.engine import Pipeline
from torch_loom.pipeline.failure import Lifeline, stage_error
from torch_loom.pipeline.lowering import StageParameters
from torch_loom.pipeline.process import ProcessStage
from torch_loom.pipeline.readers import GuardedQueue
from torch_loom.pipeline.report import Report, Span
from torch_loom.pipeline.schedule import schedule, simulate
from torch_loom.pipeline.stage import Stage

__all__ = [
    "Channel",
    "Command",
    "CommandType",
    "GuardedQueue",
    "Lifeline",
    "Pipeline",
    "ProcessStage",
    "Report",
    "Span",
    "Stage",
    "StageError",
    "StageParameters",
    "schedule",
    "simulate",
    "stage_error",
]
