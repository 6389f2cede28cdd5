"""Commands of a device's loop."""

from __future__ import annotations

import enum
from typing import Any


class CommandType(enum.Enum):
    """A command of a device."""

    QUIT = 1
    COMPILE = 2
    RUN_FORWARD = 3
    RUN_BACKWARD = 4
    RUN_GENERATE = 5
    RUN_OPTIMIZER = 6
    RUN_SCHEDULERS = 7
    GET_PARAMETER_CHECKPOINT = 8
    GET_PARAMETER_GRADIENTS = 9
    UPDATE_DEVICE_PARAMETERS = 10
    GET_QUEUES = 11
    SET_QUEUES = 12
    DC_TRANSFER = 13
    CPUEVAL_FORWARD = 14
    CPUEVAL_BACKWARD = 15
    SYNC = 16


class Command:
    """A command and its parameters: ``Command(CommandType.RUN_FORWARD, loop_count=4)``."""

    def __init__(self, command_type: CommandType, **params: Any) -> None:
        self.command_type = command_type
        self.params = params

    @classmethod
    def quit(cls) -> Command:
        """End the loop."""
        return cls(CommandType.QUIT)

    @classmethod
    def run_forward(cls, loop_count: int = 1) -> Command:
        """Run micro-batches forward."""
        return cls(CommandType.RUN_FORWARD, loop_count=loop_count)

    @classmethod
    def run_backward(cls, loop_count: int = 1, zero_grad: bool = False) -> Command:
        """Run micro-batches backward."""
        return cls(CommandType.RUN_BACKWARD, loop_count=loop_count, zero_grad=zero_grad)

    @classmethod
    def run_generate(
        cls, loop_count: int, write_index: int, tokens_per_iter: int = -1, token_id: int = -1
    ) -> Command:
        """Run micro-batches forward in generation."""
        where = {"write_index": write_index, "tokens_per_iter": tokens_per_iter, "token_id": token_id}
        return cls(CommandType.RUN_GENERATE, loop_count=loop_count, **where)

    @classmethod
    def get_queues(cls, queue_type: str) -> Command:
        """Answer with a TTDevice's queues: ``queues``, ``tile_broadcast_dims``, ``original_shapes``."""
        return cls(CommandType.GET_QUEUES, queue_type=queue_type)

    @classmethod
    def set_queues(cls, direction: str, *descriptions: Any, **more: Any) -> Command:
        """Name the queues of a direction; nothing changes, since stages know their own."""
        return cls(CommandType.SET_QUEUES, direction=direction)

    @classmethod
    def run_optimizer(cls) -> Command:
        """Step the optimizer."""
        return cls(CommandType.RUN_OPTIMIZER)

    @classmethod
    def run_schedulers(cls) -> Command:
        """Step the learning-rate scheduler."""
        return cls(CommandType.RUN_SCHEDULERS)

    @classmethod
    def get_parameter_checkpoint(cls) -> Command:
        """Answer with the parameters: ``{"checkpoint": {name: tensor}}``."""
        return cls(CommandType.GET_PARAMETER_CHECKPOINT)

    @classmethod
    def get_parameter_gradients(cls) -> Command:
        """Answer with the gradients: ``{"gradients": {name: tensor}}``."""
        return cls(CommandType.GET_PARAMETER_GRADIENTS)

    @classmethod
    def update_device_parameters(cls, parameters: Any) -> Command:
        """Overwrite parameters."""
        return cls(CommandType.UPDATE_DEVICE_PARAMETERS, parameters=parameters)

    @classmethod
    def dc_transfer(cls, direction: str) -> Command:
        """Transfer one entry between devices."""
        return cls(CommandType.DC_TRANSFER, direction=direction)

    @classmethod
    def sync(cls) -> Command:
        """Answer when idle: ``{"sync": True}``."""
        return cls(CommandType.SYNC)
