"""What a dry run notes while it is under way: memory, commands, what tensors are for, steps."""

from __future__ import annotations

import gc
import sys
import weakref
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import torch
from torch.optim.optimizer import register_optimizer_step_post_hook, register_optimizer_step_pre_hook
from torch.utils.weak import WeakIdKeyDictionary

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.plan.casts import Casts
from torch_loom.device.plan.updates import UpdatesByHand

MAX_FRAMES = 48
# What the modules of PyTorch that wrap a model call it: torch.compile()'s, those of parallel training.
_WRAPPED = ("_orig_mod", "module", "_fsdp_wrapped_module", "_checkpoint_wrapped_module")


class Frame(NamedTuple):
    """A line of Python."""

    file: str
    line: int
    function: str


class Mark(NamedTuple):
    """What the memory at an address is for, as seen when so many events of memory had been noted."""

    position: int
    address: int
    category: str


class Recording:
    """Listens from :meth:`start` to :meth:`stop`.

    Attributes:
        marks: what memory is for: parameters (with buffers), gradients, optimizer state.
        stacks: where each device had most memory in use, innermost line first.
        step_ends: device time in nanoseconds at the end of each step: of an optimizer, or by hand.
        after_step: called after each step, where what it raises reaches the program.
        setup_ns: device time when a module with memory on a device was first called; None before.
        setup_totals: what had run by then, as the last part of :meth:`kept`.
        setup_events: how many events of memory there were by then; 0 before.
        model: the class of that module; "" before.
        forward_begins: device time when that module was called, each time.
        updates: steps of optimizers that call no module, as places among the events of memory.
        casts: copies in other types that autocast makes of parameters, among other copies.
        has_backward: whether a backward pass ran.
        is_training: whether one ran or may follow, as the model was called for training.
    """

    def __init__(self, figures: Sequence[tuple[int, int, int, int]]) -> None:
        self._num_devices = len(figures)
        self._recorder = _C.PlanRecorder(self._at_peak, figures)
        self._modules: Any = WeakIdKeyDictionary()
        self._handles: list[Any] = []
        self._stepping: torch.optim.Optimizer | None = None
        self._updates = UpdatesByHand(
            address=self._address,
            now_ns=self.now_ns,
            on_gradient=self._mark_parameter,
            on_update=self._end_step,
        )
        self._is_in_backward = False
        self._has_stepped_within = False  # an optimizer, within the backward pass
        self.after_step: Callable[[], None] | None = None
        self.marks: list[Mark] = []
        self.stacks: dict[int, list[tuple[Any, int]]] = {}
        self.step_ends: list[int] = []
        self.setup_ns: int | None = None
        self.setup_totals: list[tuple[str, str, int, int]] = []
        self.setup_events = 0
        self.model = ""
        self._model: Callable[[], torch.nn.Module | None] = lambda: None
        self.forward_begins: list[int] = []
        self._update_begin: int | None = None
        self.updates: list[tuple[int, int]] = []
        self.has_backward = self.is_training = False
        self.casts = Casts(self._recorder.position)

    def start(self) -> None:
        """Begin to listen."""
        self._recorder.attach()
        modules = torch.nn.modules.module
        self._handles = [
            modules.register_module_forward_pre_hook(self._before_forward),
            modules.register_module_parameter_registration_hook(self._mark_new),
            modules.register_module_buffer_registration_hook(self._mark_new),
            register_optimizer_step_pre_hook(self._before_step),
            register_optimizer_step_post_hook(self._after_step),
        ]

    def stop(self) -> None:
        """Note what is there at the end, and listen no more."""
        try:
            for handle in self._handles:
                handle.remove()
            self.after_step = None
            self._updates.end()
            self.casts.listen(False)
            self._find_compiled()
            for module in list(self._modules.keys()):
                self._mark_module(module)
            if self._stepping is not None:  # its step failed, as where memory ran out for its state
                self._mark_state(self._stepping)
        finally:
            self._recorder.detach()

    def kept(self) -> tuple[bytes, bytes, list[tuple[str, str, int, int]]]:
        """Return what the core has noted: see ``_C.PlanRecorder``."""
        return self._recorder.kept()

    def now_ns(self) -> int:
        """Return when all devices will have run what was issued."""
        return max(_C.clock_ns(index) for index in range(self._num_devices))

    def backward(self, run: Callable[[], Any], roots: Any, inputs: Any) -> Any:
        """Run a backward pass of the program, from ``roots``, to ``inputs`` alone unless that is None."""
        if self._is_in_backward:
            return run()
        self._is_in_backward = True
        self.has_backward = self.is_training = True
        self._update_begin = None
        self.casts.listen(False)
        try:
            done = self._updates.backward(run, roots, inputs)
        finally:
            self._is_in_backward = False
        if self._has_stepped_within:
            self._has_stepped_within = False
            self._end_step(self.now_ns())
        return done

    def replace_data(self, tensor: torch.Tensor) -> None:
        """A tensor is about to be given other data."""
        if isinstance(tensor, torch.nn.Parameter):
            self._mark(tensor, "parameters")  # what it had, as where a model is cast on a device
        self._updates.replace_data(tensor)

    def _at_peak(self, device: int) -> None:
        frames: list[tuple[Any, int]] = []
        frame = sys._getframe(1)
        while frame is not None and len(frames) < MAX_FRAMES:
            if frame.f_globals.get("__package__") != __package__:
                frames.append((frame.f_code, frame.f_lineno))
            frame = frame.f_back  # type: ignore[assignment]
        self.stacks[device] = frames

    def frames(self, device: int) -> list[Frame]:
        """Return the stack of a device's peak."""
        return [
            Frame(code.co_filename, line, code.co_qualname if hasattr(code, "co_qualname") else code.co_name)
            for code, line in self.stacks.get(device, ())
        ]

    def _mark(self, tensor: object, category: str) -> bool:
        """Note what a tensor is for; return whether it has memory on a device."""
        # Of a tensor that is spread over ranks: the part that is here.
        tensor = getattr(tensor, "_local_tensor", tensor)
        if not isinstance(tensor, torch.Tensor):
            return False
        if address := self._address(tensor):
            self.marks.append(Mark(self._recorder.position(), address, category))
        return bool(address)

    def _address(self, tensor: torch.Tensor) -> int:
        """Return where the memory of a tensor's storage begins; 0: it has none on a device."""
        # As it is: data_ptr() would take memory for it.
        return self._recorder.address(tensor) if tensor.device.type == DEVICE_TYPE else 0

    def _mark_parameter(self, parameter: torch.Tensor) -> None:
        self._mark(parameter, "parameters")
        self._mark(parameter.grad, "gradients")

    def _mark_state(self, optimizer: torch.optim.Optimizer) -> None:
        for state in optimizer.state.values():
            for value in state.values() if isinstance(state, dict) else ():
                self._mark(value, "optimizer state")

    def _mark_module(self, module: torch.nn.Module) -> bool:
        is_on_device = False
        for tensor in (*module._parameters.values(), *module._buffers.values()):
            is_on_device |= self._mark(tensor, "parameters")
            if tensor is not None:
                self._mark(tensor.grad if tensor.is_leaf else None, "gradients")
        return is_on_device

    def _mark_new(self, module: torch.nn.Module, name: str, tensor: object) -> None:
        """A module is about to have a parameter or buffer, which may be gone when the module is called."""
        if self.setup_ns is None:
            self._mark(tensor, "parameters")

    def _end_setup(self, module: torch.nn.Module) -> None:
        self.model = type(_unwrapped(module)).__name__
        self._model = weakref.ref(module)
        self.is_training |= module.training and torch.is_grad_enabled()
        self.setup_events = self._recorder.position()
        self.setup_ns = self.now_ns()
        self.setup_totals = self._recorder.kept()[2]

    def _before_forward(self, module: torch.nn.Module, arguments: object) -> None:
        if torch.compiler.is_compiling():  # Dynamo traces hooks as well: there is nothing here for its graph
            return
        self._updates.end()
        self._update_begin = None
        self.casts.listen(torch.is_autocast_enabled(DEVICE_TYPE))
        if module not in self._modules:
            self._modules[module] = True
            is_on_device = False
            # All that is inside: some modules are never called, as where another one takes their weights.
            for inside in module.modules():
                is_on_device |= self._mark_module(inside)
            if self.setup_ns is None and not self.step_ends:
                # Parameters may be without memory until they are used.
                parameters = iter(()) if is_on_device else module.parameters()
                if is_on_device or any(each.device.type == DEVICE_TYPE for each in parameters):
                    self._end_setup(module)
        if module is self._model():
            self.forward_begins.append(self.now_ns())

    def _find_compiled(self) -> None:
        """Find the modules that other compiled code calls without their hooks."""
        for each in gc.get_objects():
            if issubclass(type(each), torch.nn.Module):  # isinstance() asks proxies, which may raise
                self._modules.setdefault(each, True)

    def _before_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._updates.leave_to_optimizer()
        self._stepping = optimizer
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                self._mark_parameter(parameter)
        self._update_begin = self._recorder.position()

    def _after_step(self, optimizer: torch.optim.Optimizer, *_: object) -> None:
        self._stepping = None
        self.is_training = True
        if self._update_begin is not None:
            self.updates.append((self._update_begin, self._recorder.position()))
        self._mark_state(optimizer)
        if self._is_in_backward:  # one of many, as with an optimizer for each parameter
            self._has_stepped_within = True
        else:
            self._end_step(self.now_ns())

    def _end_step(self, end_ns: int) -> None:
        self.step_ends.append(end_ns)
        if self.after_step is not None:
            self.after_step()


def _unwrapped(module: torch.nn.Module) -> torch.nn.Module:
    """Return the model in what PyTorch has wrapped around it."""
    while type(module).__module__.startswith("torch."):
        inside = next(filter(None, map(module._modules.get, _WRAPPED)), None)
        if inside is None:
            break
        module = inside
    return module
