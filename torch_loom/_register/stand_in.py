"""What takes the device's place where the package is not available: every use raises the reason."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType, ModuleType
from typing import Any, NoReturn

import torch
from torch.utils.backend_registration import rename_privateuse1_backend

from torch_loom import config
from torch_loom.errors import LoomError

_NONE: Mapping[str, ModuleType] = MappingProxyType({})


def put_module(name: str, module: ModuleType, submodules: Mapping[str, ModuleType] = _NONE) -> None:
    """Make a module ``torch.NAME``, for attributes and for imports."""
    setattr(torch, name, module)
    sys.modules[f"torch.{name}"] = module
    # So that `import torch.loom.<submodule>` does not import a second copy of the file.
    for submodule, own in submodules.items():
        sys.modules[f"torch.{name}.{submodule}"] = own


def register_module(name: str, module: ModuleType, submodules: Mapping[str, ModuleType] = _NONE) -> None:
    """Make a module the device's, under its name."""
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]
    put_module(name, module, submodules)


class StandIn(ModuleType):
    """Takes the place of ``torch.loom`` when it is not available: every use raises the reason.

    PyTorch asks some questions of every device module on behalf of programs that do not use it; these are
    answered: there are no devices. To ``hasattr`` nothing else is here.
    """

    def __init__(self, name: str, error: Exception) -> None:
        super().__init__(f"torch.{name}", f"Stand-in: {error}")
        self._error = error

    def is_available(self) -> bool:
        return False

    def device_count(self) -> int:
        return 0

    def is_initialized(self) -> bool:
        return False

    def _is_in_bad_fork(self) -> bool:
        return False

    def manual_seed_all(self, seed: int) -> None:
        pass

    def _lazy_init(self) -> NoReturn:
        raise self._error.with_traceback(None)

    def __getattr__(self, attribute: str) -> Any:
        if attribute.startswith("__"):
            raise AttributeError(attribute)
        raise _as_attribute_error(self._error)


def _as_attribute_error(error: Exception) -> AttributeError:
    kind: type[AttributeError] = AttributeError
    if isinstance(error, LoomError):
        own = type(error)
        kind = type(own.__name__, (own, AttributeError), {"__module__": own.__module__})
    return kind(str(error))


def register(name: str, own_name: str, error: Exception, *, replaces: bool = False) -> None:
    """Register the stand-in as the device of a name.

    Args:
        name: of the device that could not be registered.
        own_name: under which the module is found whatever the device is called.
        error: what each use raises.
        replaces: whether the devices' own module has the name, which the stand-in takes.
    """
    module = StandIn(name, error)
    if name == config.CUDA_NAME:
        put_module(own_name, module)  # torch.cuda stays what it was
        return
    if replaces:
        for alias in {name, own_name}:
            put_module(alias, module)
        return
    if hasattr(torch, name):
        return
    try:
        # So that torch.device(name) is understood and the first use of it raises the reason.
        rename_privateuse1_backend(name)
    except Exception:
        # Another backend has taken the place; only the module can be there.
        for alias in {name, own_name}:
            put_module(alias, module)
    else:
        register_module(name, module)
        put_module(own_name, module)
