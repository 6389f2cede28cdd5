"""The program's side of a stage that runs in a process of its own."""

from __future__ import annotations

import contextlib
import io
import random
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from torch_loom import config
from torch_loom.errors import PipelineError, RankError
from torch_loom.pipeline.failure import original_error
from torch_loom.pipeline.message import Message
from torch_loom.pipeline.process.child import serve
from torch_loom.pipeline.process.connection import Questions
from torch_loom.pipeline.stage import Stage
from torch_loom.pipeline.transfer import Parcel, Receiver, Tensors

_CPU = torch.device("cpu")
_QUIT_SECONDS = 2.0


class _ChildTraceback(Exception):  # noqa: N818 (a cause, never raised by itself)
    """The traceback of the stage's process, as text."""


class ProcessStage(Stage):
    """A stage whose modules run in a process of their own, from a pipeline's start to its shutdown.

    The program keeps copies of the modules on the host; at the shutdown they and the optimizer take what the
    process has learned, and the next start goes on from there. Tensors go through a pipe.

    Args:
        mp_context: a context of ``multiprocessing``, or ``"spawn"`` or ``"forkserver"``.
        others: as of :class:`Stage`; modules, loss, optimizer and so on must be picklable.

    Raises:
        PipelineError: another start method: a fork copies neither the threads nor the devices.
    """

    def __init__(
        self, name: str, modules: Any, device: torch.device | str = "cpu", *, mp_context: Any, **options: Any
    ) -> None:
        import multiprocessing

        context: Any = mp_context
        if isinstance(mp_context, str):
            context = multiprocessing.get_context(mp_context)
        method = context.get_start_method()
        if method not in ("spawn", "forkserver"):
            raise PipelineError(
                f"stage {name!r}: mp_context starts processes by {method!r}, which copies neither threads "
                "nor devices: pass multiprocessing.get_context('spawn')"
            )
        # Optimizer, scheduler, numbers and adapt work in the process alone.
        kept = {key: options[key] for key in ("loss", "keep_modules", "chosen") if key in options}
        super().__init__(name, modules, _CPU, **kept)
        self._where = torch.device(device)
        self._options = {key: value for key, value in options.items() if key != "keep_modules"}
        self._context = context
        self._lock = threading.Lock()
        self._process: Any = None
        self._questions: Questions | None = None
        self._trains = False
        self._num_starts = 0
        self._to_host = Receiver(_CPU)
        self._num_alive = 0
        self._state: Mapping[str, Any] | None = None

    @property
    def num_alive(self) -> int:
        """How many forwards wait for their backward."""
        return self._num_alive

    def prepare(self, training: bool) -> None:
        """Start the process, and make its stage ready for a run."""
        if self._process is None or not self._process.is_alive():
            self._start()
        value = {"training": training, "is_first": self.is_first, "is_last": self.is_last}
        self._ask("prepare", value)
        self._trains |= training

    def run_forward(
        self,
        received: Parcel,
        names: tuple[str, ...] | None,
        training: bool,
        targets: Callable[[], Parcel | None],
    ) -> tuple[torch.Tensor, ...]:
        """Run a micro-batch forward in the process; the outputs, or the losses, are on the host."""
        inputs = self._to_host.open(received)
        more: Tensors = ()
        if training and self.is_last and self.loss is not None:
            given = targets()
            more = self._to_host.open(given) if given is not None else ()
        value = {"names": names, "num_inputs": len(inputs), "training": training}
        answer = self._ask("forward", value, (*inputs, *more))
        self._num_alive += training
        return tuple(tensor for tensor in answer.tensors if tensor is not None)

    def run_backward(self, received: Parcel | None) -> tuple[Tensors, Tensors]:
        """Run the backward of the first forward alive in the process."""
        grads = () if received is None else self._to_host.open(received)
        answer = self._ask("backward", {"received": received is not None}, grads)
        self._num_alive -= 1
        return tuple(answer.tensors[: answer.value]), tuple(answer.tensors[answer.value :])

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        self._ask("zero_grad")

    def step(self) -> None:
        """Run the optimizer, if there is one."""
        if self._options.get("optimizer") is not None:
            begin = time.perf_counter_ns()
            self._ask("step")
            self._span("O", begin)

    def step_scheduler(self) -> None:
        """Step the learning-rate scheduler, if there is one."""
        self._ask("step_scheduler")

    def checkpoint(self) -> dict[str, torch.Tensor]:
        """Return copies of the parameters, by name; without a process those of the last process."""
        return self._named("checkpoint") if self._process is not None else super().checkpoint()

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return copies of the accumulated gradients; none without a process."""
        return self._named("gradients") if self._process is not None else super().gradients()

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters with these values, here and in the process."""
        super().update(values)
        if self._process is not None:
            self._ask("update", list(values), tuple(values.values()))

    def call_modules(self, method: str, *arguments: int) -> None:
        """Call a method of the modules that have it, in the process."""
        self._ask("call", [method, *arguments])

    def choose(self, place: int) -> None:
        """Let the module of this place run alone, here and in the process."""
        super().choose(place)
        if self._process is not None:
            self._ask("choose", place)

    def reset_alive(self) -> None:
        """Forget what waits for a backward; the process does so when it is prepared."""
        self._num_alive = 0

    def lost(self) -> PipelineError | None:
        """Return an error if the process has ended on its own."""
        process = self._process
        with contextlib.suppress(ValueError):  # a shutdown in another thread has closed it
            if process is not None and not process.is_alive():
                return RankError(f"the process of stage {self.name!r} {_ending(process)}")
        return None

    def kill(self) -> None:
        """End the process at once: threads that wait for it get an error."""
        if self._process is not None:
            self._process.kill()

    def end(self, deadline: float) -> str | None:
        """Take what the process has learned, and end it before ``deadline`` (``time.monotonic``)."""
        process, questions = self._process, self._questions
        if process is None or questions is None:
            return None
        problem = None
        try:
            answer = questions.ask("state", deadline=deadline)
            if answer.kind == "failed":
                raise original_error(*answer.value[:3])
            self._take(answer.tensors)
        except Exception as error:
            if self._trains:
                problem = (
                    f"the modules of stage {self.name!r} do not have what its process has learned since its "
                    f"start ({type(error).__name__}: {error})"
                )
        finally:
            with contextlib.suppress(EOFError, OSError, PipelineError):
                questions.ask("quit", deadline=deadline)
            process.join(max(min(_QUIT_SECONDS, deadline - time.monotonic()), 0.1))
            if process.is_alive():
                process.kill()
                process.join()
            self._process = self._questions = None
            self._trains = False
            questions.close()
            process.close()
        return problem

    def _start(self) -> None:
        payload = {
            "name": self.name,
            "modules": self.modules,
            "device": self._where,
            **self._options,
            "loss": self.loss,
            "chosen": self.chosen,
            "state": self._state,
            "num_threads": torch.get_num_threads(),
            "seed": self._seed(),
        }
        written = io.BytesIO()
        try:
            torch.save(payload, written)
        except Exception as error:
            raise PipelineError(
                f"stage {self.name!r} cannot go to a process of its own ({error}): its modules, optimizer "
                "and functions must be picklable, defined in a module and no lambdas; or leave out mp_context"
            ) from error
        ours, theirs = self._context.Pipe()
        given = (theirs, _settings(), written.getvalue())
        try:
            process = self._context.Process(
                target=serve, args=given, name=f"loom stage {self.name}", daemon=True
            )
            process.start()
        except BaseException:
            ours.close()
            raise
        finally:
            theirs.close()
        self._process, self._questions = process, Questions(ours)

    def _seed(self) -> int:
        """A seed for each stage and each start, derived from the program's generator.

        The generator is left as it is: the program draws the same numbers as without a process.
        """
        generator = torch.Generator()
        generator.set_state(torch.get_rng_state())
        drawn = int(torch.randint(1 << 62, (), generator=generator))
        self._num_starts += 1
        return random.Random(f"{drawn} {self._num_starts} {self.name}").getrandbits(62)

    def _ask(self, kind: str, value: Any = None, tensors: Sequence[torch.Tensor | None] = ()) -> Message:
        with self._lock:
            process, questions = self._process, self._questions
            if process is None or questions is None:
                raise PipelineError(f"the process of stage {self.name!r} has ended: start the pipeline")
            try:
                answer = questions.ask(kind, value, tensors)
            except (EOFError, OSError) as error:
                with contextlib.suppress(ValueError):  # a shutdown in another thread has closed it
                    process.join(_QUIT_SECONDS)
                raise RankError(f"the process of stage {self.name!r} {_ending(process)} in {kind}") from error
        if answer.kind == "failed":
            module, name, text, trace = answer.value
            raise original_error(module, name, text) from _ChildTraceback(f"\n{trace}")
        return answer

    def _named(self, kind: str) -> dict[str, torch.Tensor]:
        answer = self._ask(kind)
        tensors = [value for value in answer.tensors if value is not None]
        return dict(zip(answer.value, tensors, strict=True))

    def _take(self, tensors: Sequence[torch.Tensor | None]) -> None:
        data = tensors[0]
        assert data is not None
        # Of a process that this program started, and that runs its code: a pickle of it is no risk.
        state = torch.load(io.BytesIO(data.numpy().tobytes()), weights_only=False)
        losses = [self.loss] if isinstance(self.loss, torch.nn.Module) else []
        for module, values in zip([*self.modules.values(), *losses], state.pop("modules"), strict=True):
            module.load_state_dict(values)
        if state["optimizer"] is not None:
            self._state = state


def _settings() -> dict[str, str]:
    """The settings that the program made by ``configure``, as the variables of a new process."""
    found = {}
    for setting in config.SETTINGS:
        text, source = config.raw_value(setting)
        if source == "configure" and text is not None:
            found[setting.env] = text
    return found


def _ending(process: Any) -> str:
    code = None
    with contextlib.suppress(ValueError):  # closed meanwhile
        code = process.exitcode
    return "has ended" if code is None else f"ended with exit code {code}"
