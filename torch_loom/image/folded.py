"""Constants that were computed of parameters: computed again when a parameter has changed."""

from __future__ import annotations

import threading
import weakref
from collections.abc import Mapping, Sequence

import torch

from torch_loom.image.program import Program


class Folded:
    """What makes the constants of an executable out of its parameters.

    Args:
        program: it has no inputs; its tensors are the parameters, its outputs the constants.
        names: those of the constants, in the order of the outputs.
        parameters: tensors of a module, by their names in the program. Weak references are held, so that a
            module that is deleted frees its memory; its constants then stay as they are.
        others: the other tensors of the program.
        device: where the program runs.
    """

    def __init__(
        self,
        program: Program,
        names: Sequence[str],
        parameters: Mapping[str, torch.Tensor],
        others: Mapping[str, torch.Tensor],
        device: torch.device,
    ) -> None:
        self.program = program
        self.names = list(names)
        self._parameters = {name: weakref.ref(each) for name, each in parameters.items()}
        self._others = dict(others)
        self._device = device
        self._lock = threading.Lock()
        self._versions = self._current_versions()

    def refresh(self, constants: Mapping[str, torch.Tensor]) -> None:
        """Write the constants anew, in place, if a parameter has changed since they were computed."""
        if self._current_versions() == self._versions:
            return
        with self._lock:
            versions = self._current_versions()
            if versions == self._versions or self.tensors() is None:
                return
            for name, value in self.computed().items():
                if name in constants:
                    with torch.no_grad():
                        constants[name].copy_(value)
            self._versions = versions

    def computed(self) -> dict[str, torch.Tensor]:
        """Compute the constants of what the parameters are now, by name; none of a module that is gone."""
        own = self.tensors()
        if own is None:
            return {}
        # Tensors of inference mode could not be computed anew in place.
        with torch.inference_mode(False), torch.no_grad():
            run = self.program.bind({name: each.detach() for name, each in own.items()}, self._device)
            return dict(zip(self.names, run(), strict=True))

    def tensors(self) -> dict[str, torch.Tensor] | None:
        """Return the tensors of the program by name; None: the module is gone, and its parameters with it."""
        own = {name: each() for name, each in self._parameters.items()}
        alive = {name: each for name, each in own.items() if each is not None}
        return {**alive, **self._others} if len(alive) == len(own) else None

    def _current_versions(self) -> list[int | None]:
        own = [_version(parameter()) for parameter in self._parameters.values()]
        return own + [_version(other) for other in self._others.values()]


def _version(tensor: torch.Tensor | None) -> int | None:
    # Inference tensors have no versions.
    return None if tensor is None or tensor.is_inference() else tensor._version
