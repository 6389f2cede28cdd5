"""What a stage's thread does with the commands that it is sent."""

from __future__ import annotations

import threading
from typing import Any

from torch_loom.errors import PipelineError
from torch_loom.pipeline.channel import Cancelled, Channel
from torch_loom.pipeline.commands import Command, CommandType
from torch_loom.pipeline.failure import Lifeline
from torch_loom.pipeline.links import END
from torch_loom.pipeline.schedule import schedule
from torch_loom.pipeline.stage import Stage


class Worker:
    """Runs the commands of one stage in order; in a thread of its own, or in the caller's."""

    def __init__(self, stage: Stage, place: int, num_stages: int, lifeline: Lifeline) -> None:
        self.stage = stage
        self.commands: Channel[Command] = Channel(f"{stage.name}: commands", 1 << 30, lifeline)
        self._place, self._num_stages = place, num_stages
        self._lifeline = lifeline
        self._thread: threading.Thread | None = None

    def start(self) -> None:
        """Begin to take commands in a thread of its own."""
        # A daemon, since a stage that never returns must not keep the program from ending.
        self._thread = threading.Thread(target=self._loop, name=f"loom stage {self.stage.name}", daemon=True)
        self._thread.start()

    @property
    def died(self) -> bool:
        """Whether the thread has ended without a command to do so."""
        return self._thread is not None and not self._thread.is_alive() and not self._lifeline.ended

    def join(self, timeout: float) -> bool:
        """Wait for the thread to end; whether it has."""
        if self._thread is None or self._thread is threading.current_thread():
            return True
        self._thread.join(timeout)
        return not self._thread.is_alive()

    def run(self, command: Command) -> bool:
        """Run one command in this thread; whether it was QUIT.

        What fails is recorded as the pipeline's failure and not raised.
        """
        doing = command.type.name.lower()
        try:
            answer = self._do(command)
        except BaseException as error:
            if error is not self._lifeline.error and not self._lifeline.ended:
                self._lifeline.fail(self.stage.name, doing, error)
            if isinstance(error, KeyboardInterrupt):
                raise
            return True
        if command.reply is not None:
            command.reply.set(answer)
        return command.type is CommandType.QUIT

    def _loop(self) -> None:
        try:
            while not self.run(self.commands.get()):
                pass
        except BaseException as error:
            if not self._lifeline.ended:
                self._lifeline.fail(self.stage.name, "its command loop", error)

    def _do(self, command: Command) -> Any:
        stage = self.stage
        match command.type:
            case CommandType.RUN_FORWARD:
                self._forward(command)
            case CommandType.RUN_BACKWARD:
                self._backward(command)
            case CommandType.RUN_TRAINING:
                self._train(command)
            case CommandType.RUN_OPTIMIZER:
                stage.step()
                if command.checkpoint:
                    self._checkpoint()
            case CommandType.RUN_SCHEDULERS:
                stage.step_scheduler()
            case CommandType.GET_PARAMETER_CHECKPOINT:
                return stage.checkpoint()
            case CommandType.GET_PARAMETER_GRADIENTS:
                return stage.gradients()
            case CommandType.UPDATE_DEVICE_PARAMETERS:
                stage.update(command.parameters)
            case CommandType.CALL:
                return command.parameters()
            case CommandType.QUIT | CommandType.SYNC:
                return None
            case _:
                raise PipelineError(f"stage {stage.name!r} does not know the command {command.type.name}")
        return None

    def _forward(self, command: Command) -> None:
        stage = self.stage
        if command.count:
            for _ in range(command.count):
                stage.forward(command.training, on_output=command.on_output)
            return
        # Only the first stage receives the end; it passes it on in the order of the data.
        try:
            cancel = command.cancel if stage.is_first else None
            while stage.forward(command.training, cancel, command.on_output):
                pass
        except Cancelled:
            if stage.links is not None and stage.links.forward is not None:
                stage.links.forward.put(END)

    def _backward(self, command: Command) -> None:
        if command.zero_grad:
            self.stage.zero_grad()
        for _ in range(command.count or self.stage.num_alive):
            self.stage.backward()
        if not command.count and command.cancel is not None:
            while not command.cancel.wait(0.05):
                self._lifeline.check()

    def _train(self, command: Command) -> None:
        stage = self.stage
        plan = schedule(command.schedule, self._place, self._num_stages, command.count)
        num_steps, is_saved = 0, False
        for _ in range(command.epochs):
            for _ in range(command.steps):
                stage.zero_grad()
                for _ in range(command.accumulation_steps):
                    for kind, _ in plan:
                        if kind == "F":
                            stage.forward(training=True)
                        else:
                            stage.backward()
                stage.step()
                num_steps += 1
                is_saved = bool(command.checkpoint_interval) and num_steps % command.checkpoint_interval == 0
                if is_saved:
                    self._checkpoint()
            stage.step_scheduler()
        if not is_saved:
            self._checkpoint()

    def _checkpoint(self) -> None:
        links = self.stage.links
        if links is not None and links.on_checkpoint is not None:
            links.on_checkpoint(self.stage.checkpoint())
