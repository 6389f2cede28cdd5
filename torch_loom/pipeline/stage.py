"""One stage: modules on a device, what they wait for, and what they pass on. No thread stands here."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from torch_loom.errors import PipelineError
from torch_loom.pipeline.links import END, Feed, Links
from torch_loom.pipeline.lowering import (
    StageParameters,
    has_scripts,
    named_parameters,
    place_modules,
    sketches,
    spread,
)
from torch_loom.pipeline.report import MAX_SPANS, Span
from torch_loom.pipeline.transfer import Parcel, Receiver, Tensors, flatten_outputs, on, parcel

Loss = Callable[..., Any]


@dataclass
class _Alive:
    """A forward that waits for its backward."""

    inputs: tuple[torch.Tensor, ...]
    outputs: tuple[torch.Tensor, ...]


class Stage:
    """Modules that run one after another on one device, with their loss, optimizer and scheduler.

    Args:
        name: unique in its pipeline; errors name it.
        modules: an ``nn.Module`` or several by name; each gets the outputs of its predecessor as arguments.
        device: where they run.
        loss: called with the outputs and the targets; only on the last stage.
        optimizer: called with the stage's parameters (a list with ``parameters()``), returns an optimizer.
        scheduler: called with that optimizer, returns something with ``step()``.
        keep_modules: use these modules themselves instead of copies on the device.
        retain_graph: keep the autograd graph of a forward after its backward.
        numbers: makes the context that modules and loss run in, such as ``numerics.emulate``.
        adapt: changes the inputs of each micro-batch, such as their dtypes, before the modules get them.
        more_devices: that share the modules with ``device``, in order; parameters stay where their module is.
        recompute: keep only the inputs of a micro-batch in training; its backward computes the rest again.
        compiled: called with inputs, their names and whether it is training; returns the outputs, or None:
            the modules run. The device's copies of values are then made where something first asks for the
            modules or their parameters: a compiled inference has constants of its own.
        chosen: the place of the module that runs alone, until ``choose`` says another; None: all, in order.
    """

    def __init__(
        self,
        name: str,
        modules: nn.Module | Mapping[str, nn.Module],
        device: torch.device | str = "cpu",
        *,
        loss: Loss | None = None,
        optimizer: Callable[[StageParameters], Any] | None = None,
        scheduler: Callable[[Any], Any] | None = None,
        keep_modules: bool = True,
        retain_graph: bool = False,
        adapt: Callable[[tuple[torch.Tensor, ...]], tuple[torch.Tensor, ...]] | None = None,
        numbers: Callable[[], AbstractContextManager[object]] = nullcontext,
        more_devices: Sequence[torch.device] = (),
        recompute: bool = False,
        compiled: Callable[[tuple[torch.Tensor, ...], tuple[str, ...] | None, bool], Any] | None = None,
        chosen: int | None = None,
    ) -> None:
        self.name = name
        self.device = torch.device(device)
        self.devices = (self.device, *more_devices)
        self.recompute = recompute
        self._compiled = compiled
        self.chosen = chosen
        given = {name: modules} if isinstance(modules, nn.Module) else dict(modules)
        if not given:
            raise PipelineError(f"stage {name!r} has no module: place one on it")
        self.loss_scale = 1.0
        self.retain_graph = retain_graph
        self._adapt = adapt
        self.numbers = numbers
        self._make_optimizer, self._make_scheduler = optimizer, scheduler
        self._names, self._loss = list(given), loss
        self._places = spread(len(given), self.devices)
        self._taking = threading.Lock()
        self._given = [*given.values(), *([loss] if isinstance(loss, nn.Module) else [])]
        self.has_values = compiled is None or keep_modules or has_scripts(self._given)
        """Whether the values of the modules are on the device."""
        self._hold(self._placed(keep_modules) if self.has_values else sketches(self._given))
        self.optimizer: Any = None
        self.scheduler: Any = None
        self.links: Links | None = None
        self.left_behind: Any = None
        """The worker that was still within a module when its pipeline was shut down."""
        self.rank: int | None = None
        """The rank on which the stage ran last; None: this process."""
        self.spans: deque[Span] = deque(maxlen=MAX_SPANS)
        self.is_first = self.is_last = True
        self._alive: deque[_Alive] = deque()
        self._receiver = Receiver(self.device)
        self._copies_inputs = False
        self._modes: dict[nn.Module, bool] | None = None
        self._count = {"F": 0, "B": 0, "O": 0, "G": 0}

    @property
    def modules(self) -> dict[str, nn.Module]:
        """The modules by name, with values of the device's own."""
        return self.take_values()._modules

    @property
    def loss(self) -> Loss | None:
        """The loss; a module has values of the device's own."""
        return self.take_values()._loss

    @loss.setter
    def loss(self, loss: Loss | None) -> None:
        self.take_values()._loss = loss

    @property
    def parameters(self) -> StageParameters:
        """The parameters of modules and loss, on the device."""
        return self.take_values()._parameters

    def take_values(self) -> Stage:
        """Copy the modules' values to the device, if that is still to be done; return the stage."""
        if self.has_values:
            return self
        with self._taking:
            if not self.has_values:
                self._hold(self._placed(keep=False))
                if self._modes is not None:
                    self._modes = None
                    self.prepare(training=False)
                self.has_values = True  # last: who sees it takes the modules as they are
                self._given = []  # the program's own to let go
        return self

    def _placed(self, keep: bool) -> list[nn.Module]:
        loss_places = self._places[-1:] * (len(self._given) - len(self._places))
        return place_modules(self._given, [*self._places, *loss_places], keep=keep)

    def _hold(self, every: list[nn.Module]) -> None:
        """Run these: the modules, and the loss where it is one."""
        self._modules = dict(zip(self._names, every, strict=False))
        named = named_parameters(self._modules)
        if len(every) > len(self._names):
            self._loss = every[-1]
            named.update({f"loss.{name}": value for name, value in every[-1].named_parameters()})
        self._parameters = StageParameters(named)

    @property
    def num_alive(self) -> int:
        """How many forwards wait for their backward."""
        return len(self._alive)

    def prepare(self, training: bool) -> None:
        """Make ready for a run: modules in evaluation mode for inference, an optimizer for training."""
        modules = self.modules if training else self._modules
        every = [m for module in modules.values() for m in module.modules()]
        # Autograd refuses to overwrite a leaf, which the inputs of a stage are.
        self._copies_inputs = any(getattr(module, "inplace", False) for module in every)
        if training:
            for module, mode in (self._modes or {}).items():
                module.training = mode
            self._modes = None
            if self.optimizer is None and self._make_optimizer is not None and self.parameters:
                self.optimizer = self._make_optimizer(self.parameters)
            if self.scheduler is None and self._make_scheduler is not None and self.optimizer is not None:
                self.scheduler = self._make_scheduler(self.optimizer)
        elif self._modes is None:
            self._modes = {module: module.training for module in every}
            for module in every:
                module.training = False

    def training_modes(self) -> list[bool]:
        """Return whether each of the modules that run, and of those within, trains in training."""
        modes = self._modes or {}
        every = [inner for module in self.chosen_modules() for inner in module.modules()]
        return [modes.get(inner, inner.training) for inner in every]

    def reset_alive(self) -> None:
        """Forget what waits for a backward."""
        self._alive.clear()

    def reset(self) -> None:
        """Forget what an earlier run left."""
        self.reset_alive()
        self.spans.clear()
        self._count = dict.fromkeys(self._count, 0)

    def forward(
        self,
        training: bool,
        cancel: threading.Event | None = None,
        on_output: Callable[..., None] | None = None,
    ) -> bool:
        """Run one micro-batch forward; False if the run was ended instead.

        Outputs of the last stage go to ``on_output``, or else to that of its links.

        Raises:
            Cancelled: ``cancel`` was set while the first stage waited.
        """
        links = self._linked()
        feed = links.inputs.take(cancel=cancel, lifeline=links.lifeline)
        try:
            if feed.parcel is None:
                if links.forward is not None:
                    links.forward.put(END)
                return False
            begin = time.perf_counter_ns()
            outputs = self.run_forward(feed.parcel, feed.names, training, lambda: _next_targets(links))
            if training and self.is_last and links.on_loss is not None:
                links.on_loss(tuple(loss.detach() for loss in outputs))
            self._span("F", begin)
            if links.on_done is not None:
                links.on_done(outputs if training and self.is_last else ())
        finally:
            links.inputs.release()
        self._pass_on(outputs, links, on_output)
        return True

    def backward(self) -> None:
        """Run the backward of the micro-batch that came first of those alive.

        Raises:
            PipelineError: none is alive.
        """
        links = self._linked()
        if not self.num_alive:
            raise PipelineError(
                f"stage {self.name!r}: a backward without a forward; run as many forwards in training first"
            )
        received = links.gradients.get() if links.gradients is not None else None
        begin = time.perf_counter_ns()
        grads, upstream = self.run_backward(received)
        if links.on_gradients is not None:
            links.on_gradients(grads)
            links.on_gradients(upstream)
        self._span("B", begin)
        if links.backward is not None:
            if links.on_backward is not None:
                links.on_backward(upstream)
            links.backward.put(parcel(upstream))

    def run_forward(
        self,
        received: Parcel,
        names: tuple[str, ...] | None,
        training: bool,
        targets: Callable[[], Parcel | None],
    ) -> tuple[torch.Tensor, ...]:
        """Return what the modules make of a micro-batch; of the last stage in training, the losses.

        Args:
            targets: called where there is a loss, once the outputs are there.
        """
        inputs = self._open(received, training)
        outputs: tuple[torch.Tensor, ...] | None = None
        if self._compiled is not None:
            with torch.set_grad_enabled(training):
                outputs = self._compiled(inputs, names, training)
        with torch.set_grad_enabled(training), self.numbers():
            if outputs is None:
                compute = self._recomputed if training and self.recompute else self.compute
                outputs = compute(inputs, names)
            if training and self.is_last and self.loss is not None:
                given = targets()
                opened = self._receiver.open(given) if given is not None else ()
                opened = tuple(value if value is None else value.to(self._places[-1]) for value in opened)
                outputs = flatten_outputs(self.loss(*outputs, *opened))
        if training:
            self._alive.append(_Alive(inputs, outputs))
        return outputs

    def run_backward(self, received: Parcel | None) -> tuple[Tensors, Tensors]:
        """Run the backward of the first forward alive; return the gradients of its outputs and inputs.

        Args:
            received: the gradients of the outputs; None: they are losses.
        """
        alive = self._alive.popleft()
        if received is None:
            grads: Tensors = tuple(torch.full_like(out, self.loss_scale) for out in alive.outputs)
        else:
            opened = self._receiver.open(received)
            grads = tuple(
                grad if grad is None else grad.to(out.device)
                for grad, out in zip(opened, alive.outputs, strict=True)
            )
        pairs = [
            (out, grad)
            for out, grad in zip(alive.outputs, grads, strict=True)
            if out.requires_grad and grad is not None
        ]
        if pairs:
            torch.autograd.backward(
                [out for out, _ in pairs], [grad for _, grad in pairs], retain_graph=self.retain_graph
            )
        return grads, tuple(tensor.grad for tensor in alive.inputs)

    def zero_grad(self) -> None:
        """Drop accumulated gradients."""
        for parameter in self.parameters:
            parameter.grad = None

    def step(self) -> None:
        """Run the optimizer, if there is one."""
        if self.optimizer is not None:
            begin = time.perf_counter_ns()
            self.optimizer.step()
            self._span("O", begin)

    def step_scheduler(self) -> None:
        """Step the learning-rate scheduler, if there is one."""
        if self.scheduler is not None:
            self.scheduler.step()

    def checkpoint(self) -> dict[str, torch.Tensor]:
        """Return copies of the parameters on the host, by name.

        Raises:
            PipelineError: the stage runs on another rank.
        """
        self._require_here()
        return {name: _on_host(value) for name, value in self.parameters.named_parameters()}

    def gradients(self) -> dict[str, torch.Tensor]:
        """Return copies of the accumulated gradients on the host; a parameter without a gradient is left out.

        Raises:
            PipelineError: the stage runs on another rank.
        """
        self._require_here()
        return {
            name: _on_host(value.grad)
            for name, value in self.parameters.named_parameters()
            if value.grad is not None
        }

    def call_modules(self, method: str, *arguments: int) -> None:
        """Call a method of all modules, those within too, that have it."""
        for module in self.modules.values():
            for inner in module.modules():
                found = getattr(inner, method, None)
                if callable(found):
                    found(*arguments)

    def choose(self, place: int) -> None:
        """Let only the module of this place run, instead of the previously chosen module."""
        self.chosen = place

    def chosen_modules(self, *, with_values: bool = True) -> list[nn.Module]:
        """Return the modules that run, in order.

        Args:
            with_values: on the device; False: their values may still be the program's, to be read only.
        """
        every = list((self.modules if with_values else self._modules).values())
        return every if self.chosen is None else [every[self.chosen]]

    def lost(self) -> PipelineError | None:
        """Return why the stage can run no more without having been ended, or None."""
        return None

    def kill(self) -> None:
        """End what the stage is within, where that is possible."""

    def end(self, deadline: float) -> str | None:
        """Let go of what a run held; called once the worker has ended, and returns before ``deadline``.

        Returns what of the run is lost, or None.
        """
        return None

    def check_update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Say whether these can become the parameters' values.

        Raises:
            PipelineError: a name that no parameter has, or another shape.
        """
        for name, value in values.items():
            parameter = self.parameters.named.get(name)
            if parameter is None:
                known = ", ".join(sorted(self.parameters.named)) or "none"
                raise PipelineError(f"stage {self.name!r} has no parameter {name!r}; it has {known}")
            if parameter.shape != value.shape:
                raise PipelineError(
                    f"parameter {name!r} of stage {self.name!r} has shape {tuple(parameter.shape)}, "
                    f"and its new value {tuple(value.shape)}"
                )

    def update(self, values: Mapping[str, torch.Tensor]) -> None:
        """Overwrite parameters with these values."""
        self.check_update(values)
        with torch.no_grad():
            for name, value in values.items():
                self.parameters.named[name].copy_(value)

    def _require_here(self) -> None:
        if self.rank is not None:
            raise PipelineError(
                f"stage {self.name!r} runs on rank {self.rank}, which has its parameters: ask the running "
                "pipeline (checkpoint(), gradients()) on all ranks"
            )

    def _linked(self) -> Links:
        if self.links is None:
            raise PipelineError(f"stage {self.name!r} belongs to no running pipeline: start it first")
        return self.links

    def _open(self, received: Parcel, training: bool) -> tuple[torch.Tensor, ...]:
        tensors = tuple(t for t in self._receiver.open(received) if t is not None)
        if not training or self.is_first:
            return tensors
        return tuple(t.detach().requires_grad_(t.is_floating_point() or t.is_complex()) for t in tensors)

    def compute(
        self, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...] | None = None
    ) -> tuple[torch.Tensor, ...]:
        """Run the modules on inputs of this stage's device, in order or by name, and return all outputs."""
        if self._adapt is not None:
            inputs = self._adapt(inputs)
        if self._copies_inputs:
            inputs = tuple(tensor.clone() for tensor in inputs)
        values: Sequence[torch.Tensor] = inputs
        running = list(zip(self.modules.values(), self._places, strict=True))
        if self.chosen is not None:
            running = [running[self.chosen]]
        for place, (module, device) in enumerate(running):
            values = [value if value.is_meta else on(device, value) for value in values]
            if place == 0 and names is not None:
                given = module(**dict(zip(names, inputs, strict=True)))
            else:
                given = module(*values)
            values = flatten_outputs(given)
        return tuple(values)

    def _recomputed(
        self, inputs: tuple[torch.Tensor, ...], names: tuple[str, ...] | None
    ) -> tuple[torch.Tensor, ...]:
        def run(*values: torch.Tensor) -> tuple[torch.Tensor, ...]:
            with self.numbers():  # the backward runs outside of this stage's context
                return self.compute(values, names)

        made: tuple[torch.Tensor, ...] = checkpoint(run, *inputs, use_reentrant=False)
        return made

    def _pass_on(
        self, outputs: tuple[torch.Tensor, ...], links: Links, on_output: Callable[..., None] | None
    ) -> None:
        passed = tuple(out.detach() if out.requires_grad else out for out in outputs)
        if links.forward is not None:
            if links.on_forward is not None:
                links.on_forward(passed)
            links.forward.put(Feed(parcel(passed)))
        elif on_output is not None or links.on_output is not None:
            (on_output or links.on_output)(passed)  # type: ignore[misc]

    def _span(self, kind: str, begin_ns: int) -> None:
        self.spans.append(Span(kind, self._count[kind], begin_ns, time.perf_counter_ns()))
        self._count[kind] += 1


def _on_host(value: torch.Tensor) -> torch.Tensor:
    return value.detach().to("cpu", copy=True)


def _next_targets(links: Links) -> Parcel | None:
    return links.targets.get(lifeline=links.lifeline).parcel
