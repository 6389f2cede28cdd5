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
        self._program = program
        self._names = list(names)
        self._parameters = {name: weakref.ref(one) for name, one in parameters.items()}
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
            parameters = {name: one() for name, one in self._parameters.items()}
            if versions == self._versions or any(one is None for one in parameters.values()):
                return
            with torch.no_grad():
                own = {name: one.detach() for name, one in parameters.items() if one is not None}
                run = self._program.bind({**self._others, **own}, self._device)
                for name, value in zip(self._names, run(), strict=True):
                    if name in constants:
                        constants[name].copy_(value)
            self._versions = versions

    def _current_versions(self) -> list[int | None]:
        own = [_version(one()) for one in self._parameters.values()]
        return own + [_version(one) for one in self._others.values()]


def _version(tensor: torch.Tensor | None) -> int | None:
    # Inference tensors have no versions.
    return None if tensor is None or tensor.is_inference() else tensor._version
