"""Libraries that know devices by a list of names learn this one, when the program imports them.

Under the name cuda they know it. Under any other they would take the CPU, or refuse the name: each module
here changes what one library asks, by the library's own extension point where it has one. With
``TORCH_LOOM_LIBRARIES=0`` all stay as they are.
"""

from __future__ import annotations

import warnings
from collections.abc import Callable
from importlib import import_module

import torch_loom
from torch_loom import late

__all__ = ["register"]

# The module of a library whose import makes it known, what changes it here, and the function.
_LIBRARIES = (
    ("accelerate.accelerator", "accelerate", "apply"),
    ("transformers.training_args", "transformers", "apply"),
    ("safetensors", "safetensors", "apply"),
    ("safetensors.torch", "safetensors", "apply_to_torch"),
    ("lightning.pytorch.trainer.connectors.accelerator_connector", "lightning", "apply"),
    ("pytorch_lightning.trainer.connectors.accelerator_connector", "lightning", "apply_to_old_name"),
)


def register(name: str) -> None:
    """Let each library learn a device's name when it is imported, or now if it has been.

    Args:
        name: of the devices, as in ``torch.device(name)``.
    """

    def call(library: str, module: str, function: str) -> Callable[[], None]:
        def apply() -> None:
            if torch_loom._failure is not None:
                return  # there are no such devices, and each use says why
            try:
                getattr(import_module(f"{__name__}.{module}"), function)(name)
            except Exception as error:
                # What a library has inside changes with its releases; its import goes on.
                warnings.warn(
                    f"{library} did not learn the device's name {name!r} ({type(error).__name__}: {error}), "
                    "and treats these devices as unknown. TORCH_LOOM_LIBRARIES=0 does not try.",
                    RuntimeWarning,
                    stacklevel=2,
                )

        return apply

    for library, module, function in _LIBRARIES:
        late.after_import(library, call(library, module, function))
