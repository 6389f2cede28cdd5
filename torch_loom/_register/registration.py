"""Makes PyTorch know the device: its name, its module, the generated methods."""

from __future__ import annotations

import atexit
import importlib
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NoReturn

import torch
from torch.utils.backend_registration import (
    generate_methods_for_privateuse1_backend,
    rename_privateuse1_backend,
)

from torch_loom import config, late
from torch_loom._register import fitness, library_files, stand_in
from torch_loom.config import settings
from torch_loom.cuda import build_for_cuda
from torch_loom.cuda import registration as cuda
from torch_loom.cuda.names.submodules import SUBMODULES
from torch_loom.errors import ConfigurationError, ExtensionError

# The name of the device where no other is asked for. The module has it under every name.
OWN_NAME = "loom"

# Why the first attempt ended in the middle. Python forgets a package whose import was interrupted, but not
# its modules, so that a second import would register everything again.
_interruption: Exception | None = None


def register() -> Exception | None:
    """Register the device under its name.

    Returns:
        None, or the error because of which a stand-in was registered; each use of the stand-in raises it.
    """
    global _interruption
    if _interruption is not None:
        return _interruption
    name, has_module = OWN_NAME, False
    extension: Any = None
    try:
        name = config.device_name()
        if name != cuda.NAME:
            _reject_taken_name(name)
        file = fitness.check(torch)
        if name == cuda.NAME:
            build_for_cuda.check_unused()
        extension = _load_extension(file)
        # Everything in C++ at once. What follows registers with PyTorch's Python.
        extension.register_device(name)
        extension.set_library_files(library_files.prefixes())
        late.after_import("triton", lambda: extension.set_library_files(library_files.prefixes()))
        _stop_threads_at_exit()
        module = _module_of_devices(extension)
        submodules = {name: late.lazily(own) for name, own in SUBMODULES.items()}
        entries = importlib.import_module("torch_loom._register.entries")
        entries.end_cuda_sanitizer(name)
        if name == cuda.NAME:
            build_for_cuda.end_native_kernels()
            if build_for_cuda.is_one():
                build_for_cuda.give_way()
            cuda.take_over(module)
            cuda.patch(module)
        elif name == config.rbln.NAME:
            rename_privateuse1_backend(name)
            # What has another counterpart under the vendor's name, or none, is found under our own.
            own = importlib.import_module("torch_loom.rbln")
            stand_in.register_module(name, own, {each: getattr(own, each) for each in submodules})
            has_module = True
        else:
            rename_privateuse1_backend(name)
            stand_in.register_module(name, module, submodules)
            has_module = True
        if name != OWN_NAME:
            stand_in.put_module(OWN_NAME, module, submodules)
        if name != cuda.NAME:
            generate_methods_for_privateuse1_backend(
                for_tensor=True, for_module=True, for_packed_sequence=True, for_storage=True
            )
        entries.register(name)
        importlib.import_module("torch_loom.distributed").register(name)
        if name == config.rbln.NAME:
            importlib.import_module("torch_loom.rbln.collectives").register()
        late.after_import("torch.distributed.checkpoint.filesystem", _watch_checkpoints)
        late.after_import("torch.testing._internal.distributed.fake_pg", _plan_fake_groups)
        _register_compilers()
        importlib.import_module("torch_loom.kernels.triton.installation").install(name, _chip_of)
        if config.value(settings.MATMUL) == "tensor_core":
            chip = config.resolve().chips[0]
            importlib.import_module("torch_loom.numerics.tensor_cores").multiply_by_setting(chip)
    except Exception as error:
        # An invalid name cannot be registered; a stand-in under the default name reports why.
        own_name = OWN_NAME if isinstance(error, ConfigurationError) and not has_module else name
        failure = fitness.with_repair(error)
        _stand_in(own_name, failure, extension, has_module)
        return failure
    except BaseException as error:  # Ctrl-C, or whatever a damaged file raises
        _interruption = ExtensionError(
            f"{error!r} interrupted the registration of the devices: start the program again"
        )
        _stand_in(name, _interruption, extension, has_module)
        raise
    return None


def _stand_in(name: str, error: Exception, extension: Any, has_module: bool) -> None:
    """Let each use raise the error, of what has been registered, too."""

    def refuse() -> NoReturn:
        raise error.with_traceback(None)

    late.forget()
    if extension is not None:
        extension.set_initializer(refuse)
    stand_in.register(name, OWN_NAME, error, replaces=has_module)


def _module_of_devices(extension: Any) -> ModuleType:
    """Return the module, which is imported when a program or the extension first asks it for something."""
    module: ModuleType = late.lazily("torch_loom.device")
    first_use = late.lazily("torch_loom.device._core.first_use")
    clock = late.lazily("torch_loom.device._core.clock")

    def initialize() -> None:
        try:
            start = first_use._lazy_init
        except Exception as error:  # of its import
            raise fitness.with_repair(error) from error
        start()

    extension.set_initializer(initialize)
    extension.set_device_count_peek(lambda: first_use._peek_device_count())
    late.after_import("torch_loom.device._core.first_use", lambda: first_use.set_chip_loader(_load_chip))
    late.after_import("torch_loom.device._core.clock", lambda: clock.set_estimator(_make_estimator))
    return module


def _chip_of(device: int) -> Any:
    return importlib.import_module("torch_loom.device._core.first_use")._chip_figures(device).chip


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


def _load_extension(file: Path) -> ModuleType:
    try:
        return fitness.load(file)
    except Exception as error:
        raise fitness.load_failure(error, torch) from error


def _stop_threads_at_exit() -> None:
    # Registered now, so that it runs after the handlers of code that imports torch: no backward() comes after
    # it.
    from torch_loom import _C

    atexit.register(_C.stop_autograd_threads)


def _load_chip(chip: str, executes: bool) -> Any:
    # Imported at first use: programs that use no device need no reader of chips.
    return importlib.import_module("torch_loom.chips.core").load_for_core(chip, executes)


def _watch_checkpoints() -> None:
    importlib.import_module("torch_loom.device.plan.files").watch_checkpoints()


def _plan_fake_groups() -> None:
    importlib.import_module("torch_loom.device.plan.group").plan_fake_groups()


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
    late.after_import("torch._inductor.runtime.benchmarking", call("register_timing"))


def _make_estimator(figures_of: Any) -> Any:
    return importlib.import_module("torch_loom.chips.core").estimator(figures_of)
