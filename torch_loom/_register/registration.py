"""Makes PyTorch know the device: its name, its module, the generated methods."""

from __future__ import annotations

import atexit
import importlib
import sys
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from torch_loom import config, late
from torch_loom._register import library_files
from torch_loom.cuda import registration as cuda
from torch_loom.errors import ConfigurationError, ExtensionError, LoomError, VersionMismatchError

# The name of the device where no other is asked for. The module has it under every name.
OWN_NAME = "loom"


def register() -> Exception | None:
    """Register the device under its name.

    Returns:
        None, or the error because of which a stand-in was registered; each use of the stand-in raises it.
    """
    name = OWN_NAME
    try:
        name = config.device_name()
        if name != cuda.NAME:
            _reject_taken_name(name)
        _check_version()
        _load_extension()
        # Everything in C++ at once. What follows registers with PyTorch's Python.
        extension = importlib.import_module("torch_loom._C")
        extension.register_device(name)
        extension.set_library_files(library_files.prefixes())
        _stop_threads_at_exit()
        module: ModuleType = importlib.import_module("torch_loom.device")
        importlib.import_module("torch_loom.device._core.first_use").set_chip_loader(_load_chip)
        importlib.import_module("torch_loom.device._core.clock").set_estimator(_make_estimator)
        entries = importlib.import_module("torch_loom._register.entries")
        entries.end_cuda_sanitizer(name)
        if name == cuda.NAME:
            cuda.take_over(module)
            cuda.patch(module)
            _put_module(OWN_NAME, module)
        else:
            rename_privateuse1_backend(name)
            _register_module(name, module)
            generate_methods_for_privateuse1_backend(
                for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
            )
        entries.register(name)
        late.after_import("torch.distributed.checkpoint.filesystem", _watch_checkpoints)
        _register_compilers()
        importlib.import_module("torch_loom.kernels.triton.installation").install(name)
    except Exception as error:
        # An invalid name cannot be registered; a stand-in under the default name reports why.
        _register_stand_in(OWN_NAME if isinstance(error, ConfigurationError) else name, error)
        return error
    return None


def _reject_taken_name(name: str) -> None:
    owners = {
        "torch": torch,
        "torch.Tensor": torch.Tensor,
        "torch.nn.Module": torch.nn.Module,
        "torch.UntypedStorage": torch.UntypedStorage,
        "torch.nn.utils.rnn.PackedSequence": torch.nn.utils.rnn.PackedSequence,
    }
    for owner_name, owner in owners.items():
        if hasattr(owner, name):
            raise config.device_name_taken(name, f"{owner_name}.{name}")
    try:
        torch.device(name)
    except RuntimeError:
        return
    raise config.device_name_taken(name, f"torch.device({name!r})")


def _major_minor(version: str) -> tuple[str, ...]:
    return tuple(version.split("+")[0].split(".")[:2])


def _check_version() -> None:
    # Read from a file: an extension that was built against another torch may fail to load in any way.
    try:
        built_with: str = importlib.import_module("torch_loom._built_with").TORCH_VERSION
    except ImportError:
        return
    running = str(torch.__version__)
    if _major_minor(built_with) != _major_minor(running):
        raise VersionMismatchError(
            f"torch-loom was built against torch {built_with}, but torch {running} is running. Build "
            f"torch-loom again with this torch, or install torch {'.'.join(_major_minor(built_with))}."
        )


def _load_extension() -> None:
    try:
        importlib.import_module("torch_loom._C")
    except ImportError as error:
        folder = Path(__file__).parents[2]
        if (folder / "csrc").is_dir() and not _has_extension(folder / "torch_loom"):
            raise ExtensionError(
                f"{folder} has torch-loom's sources without the compiled extension, and Python imports them. "
                "Start Python in another folder to import what is installed, or build the extension here: "
                "`pip install --no-build-isolation -e .`"
            ) from error
        raise ExtensionError(
            f"The extension torch_loom._C could not be loaded ({error}). It was not built, or against "
            f"another torch than {torch.__version__}: build torch-loom again."
        ) from error


def _has_extension(folder: Path) -> bool:
    return any((folder / f"_C{suffix}").exists() for suffix in EXTENSION_SUFFIXES)


def _stop_threads_at_exit() -> None:
    # Registered now, so that it runs after the handlers of code that imports torch: no backward() comes after
    # it.
    from torch_loom import _C

    atexit.register(_C.stop_autograd_threads)


def _load_chip(chip: str) -> Any:
    # Imported at first use: programs that use no device need no reader of chips.
    return importlib.import_module("torch_loom.chips.core").load_for_core(chip)


def _watch_checkpoints() -> None:
    importlib.import_module("torch_loom.device.plan.files").watch_checkpoints()


def _register_compilers() -> None:
    # Each function is imported with the compiler that it registers with.
    def call(function: str) -> Callable[[], None]:
        def register() -> None:
            getattr(importlib.import_module("torch_loom.compiler.inductor.register"), function)()

        return register

    late.after_import("torch._dynamo.device_interface", call("register_with_dynamo"))
    late.after_import("torch._dynamo.trace_rules", call("register_trace_rules"))
    late.after_import("torch._dynamo.variables.torch", call("register_constants"))
    late.after_import("torch._dynamo.backends.registry", call("register_own_backend"))
    late.after_import("torch._meta_registrations", call("register_shape_functions"))
    late.after_import("torch._subclasses.fake_impls", call("register_fake_kernels"))
    late.after_import("torch._inductor.compile_fx", call("register_with_inductor"))


def _make_estimator(figures_of: Any) -> Any:
    return importlib.import_module("torch_loom.chips.core").estimator(figures_of)


def _register_module(name: str, module: ModuleType) -> None:
    torch._register_device_module(name, module)  # type: ignore[no-untyped-call]
    # What has no counterpart under the other name is found under our own: torch.loom.explain.
    for alias in {name, OWN_NAME}:
        _put_module(alias, module)


def _put_module(name: str, module: ModuleType) -> None:
    setattr(torch, name, module)
    sys.modules[f"torch.{name}"] = module
    # So that `import torch.loom.<submodule>` does not import a second copy of the file.
    for submodule in getattr(module, "SUBMODULES", ()):
        sys.modules[f"torch.{name}.{submodule}"] = getattr(module, submodule)


class _StandIn(ModuleType):
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


def _register_stand_in(name: str, error: Exception) -> None:
    module = _StandIn(name, error)
    if name == cuda.NAME:
        _put_module(OWN_NAME, module)  # torch.cuda stays what it was
        return
    if hasattr(torch, name):
        return
    try:
        # So that torch.device(name) is understood and the first use of it raises the reason.
        rename_privateuse1_backend(name)
    except Exception:
        # Another backend has taken the place; only the module can be there.
        for alias in {name, OWN_NAME}:
            _put_module(alias, module)
    else:
        _register_module(name, module)
