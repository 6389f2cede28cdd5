"""How a replacement is declared and made: one attribute or a few (:func:`patch`), or many for one purpose."""

from __future__ import annotations

import inspect
import sys
from collections.abc import Callable
from importlib import import_module
from typing import Any, NamedTuple

from torch_loom import config


class Change(NamedTuple):
    """A row of docs/upstream.md.

    Attributes:
        replaces: names, in the form ``module:owner.attribute``; ``{device}`` is the device's name.
        reason: why PyTorch's own does not do.
        issue: upstream, as ``pytorch/pytorch#1``, several with commas between; empty if none is filed.
        shown_under: the heading of docs/upstream.md that has a script; empty if that would need a device.
        until: which version of PyTorch makes it superfluous; empty if that is not known.
    """

    replaces: tuple[str, ...]
    reason: str
    issue: str = ""
    shown_under: str = ""
    until: str = ""


class Place(NamedTuple):
    """What a patch replaces in one place.

    Attributes:
        name: of the attribute.
        original: what is there, or None.
        device: the device's name.
    """

    name: str
    original: Any
    device: str


class Patch(NamedTuple):
    """A replacement that stays as long as the process runs."""

    change: Change
    make: Callable[..., Any]
    importers: str

    def apply(self, *given: Any) -> None:
        """Replace the names, once.

        Args:
            given: what the patch takes beside its place.
        """
        for path in self.change.replaces:
            module, _, attribute = path.format(device=config.device_name()).partition(":")
            *outer, name = attribute.split(".")
            owner: Any = import_module(module)
            for part in outer:
                owner = getattr(owner, part)
            original = getattr(owner, name, None)
            if original is not None and _made.get(path) is original:
                continue
            new = _made[path] = self.make(Place(name, original, config.device_name()), *given)
            is_static = isinstance(inspect.getattr_static(owner, name, None), staticmethod)
            setattr(owner, name, staticmethod(new) if is_static else new)
            self._replace_in_importers(name, original, new)

    def _replace_in_importers(self, name: str, original: Any, new: Any) -> None:
        for module in list(sys.modules.values()) if self.importers else ():
            is_below = getattr(module, "__name__", "").startswith(self.importers)
            if is_below and vars(module).get(name) is original:
                setattr(module, name, new)


# What patches have put in their places.
_made: dict[str, Any] = {}
CHANGES: list[Change] = []


def patch(
    *replaces: str, issue: str = "", shown_under: str = "", until: str = "", importers: str = ""
) -> Callable[[Callable[..., Any]], Patch]:
    """Declare a patch: the function below makes what takes the place, its docstring begins with the reason.

    Args:
        replaces, issue, shown_under, until: see :class:`Change`.
        importers: a package whose modules may have imported the name; they get the replacement, too.
    """

    def declare(make: Callable[..., Any]) -> Patch:
        change = Change(replaces, _reason(make), issue, shown_under, until)
        CHANGES.append(change)
        return Patch(change, make, importers)

    return declare


def declared(*replaces: str, issue: str = "", shown_under: str = "") -> Callable[[Any], Any]:
    """Declare a function that changes tables of PyTorch for a time; its docstring begins with the reason."""

    def declare(function: Any) -> Any:
        CHANGES.append(Change(replaces, _reason(function), issue, shown_under))
        return function

    return declare


def _reason(function: Callable[..., Any]) -> str:
    return " ".join(inspect.cleandoc(function.__doc__ or "").partition("\n\n")[0].split())


class Purpose(NamedTuple):
    """Names that are replaced for one purpose, by the layer that knows what takes their places."""

    change: Change

    def put(self, owner: Any, **values: Any) -> list[tuple[Any, str, Any]]:
        """Put values in the place of an owner's attributes.

        Returns:
            The owner, the name and what it was (None if it was not), of each: what :meth:`restore` takes.
        """
        before = [(owner, name, getattr(owner, name, None)) for name in values]
        for name, value in values.items():
            setattr(owner, name, value)
        return before

    def remove(self, owner: Any, name: str) -> None:
        """Remove an attribute, where PyTorch has it."""
        if hasattr(owner, name):
            delattr(owner, name)

    def restore(self, before: list[tuple[Any, str, Any]]) -> None:
        """Put back what was there, the last first; leaves the list empty."""
        while before:
            setattr(*before.pop())


def _purpose(*replaces: str, reason: str, until: str) -> Purpose:
    change = Change(replaces, reason, until=until)
    CHANGES.append(change)
    return Purpose(change)


CUDA_NAME = _purpose(
    "torch:cuda",
    "torch:_C",
    "torch:UntypedStorage",
    "torch:Tensor",
    "torch:version",
    "torch:backends",
    "torch:autograd.profiler",
    "torch:distributed",
    "torch:utils.cpp_extension",
    "triton:runtime",
    "triton:compiler",
    reason="Under the name cuda these answer as a build for CUDA does, from the devices; where a GPU would "
    "run what the devices do not, they refuse it. A CPU build has no bodies for them.",
    until="never: it is what the name stands for",
)
DRY_RUNS = _purpose(
    "torch:load",
    "torch:save",
    "torch:distributed.init_process_group",
    "torch.nn.parallel:distributed",
    "safetensors.torch:save_file",
    "builtins:open",
    "os:replace",
    "shutil:copyfile",
    reason="In a dry run files of tensors are kept aside, and the other ranks of a planned group are not "
    "there. What the end of the run restores is as it was for other threads.",
    until="never: neither Python nor PyTorch can know of dry runs",
)
LIBRARIES = _purpose(
    "accelerate.state:PartialState.default_device",
    "accelerate.accelerator:get_grad_scaler",
    "accelerate.accelerator:Accelerator.__init__",
    "transformers.training_args:is_torch_bf16_gpu_available",
    "transformers.training_args:TrainingArguments._setup_devices",
    "safetensors:safe_open",
    "safetensors.torch:load_file",
    "lightning.pytorch.trainer.connectors.accelerator_connector:_AcceleratorConnector._choose_strategy",
    reason="These libraries choose by lists of the names of devices, which a device of PyTorch's extension "
    "point cannot join; Lightning's registry of accelerators alone is open.",
    until="they ask torch.accelerator",
)
