"""Puts the backend in the place of NVIDIA's, when a program imports triton."""

from __future__ import annotations

import importlib
import math
import sys
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from torch_loom import config as loom_config
from torch_loom import late
from torch_loom.config import settings
from torch_loom.patches.declared import CUDA_NAME

if TYPE_CHECKING:
    from torch_loom.chips.chip import Chip


def install(name: str, chip_of: Callable[[int], Chip]) -> None:
    """Have Triton find the devices of this name, now or once it is imported.

    Under ``TRITON_INTERPRET=1`` its kernels run in Python, and nothing is changed.
    """
    if loom_config.interprets_triton():
        late.after_import("triton.runtime.autotuner", _time_no_choices)
        return
    late.after_import("triton.backends", lambda: _replace_backend(name, chip_of))
    late.after_import("triton.compiler.compiler", _make_texts_for_gpus)
    late.after_import("triton.runtime.autotuner", _time_no_choices)


def _make_texts_for_gpus() -> None:
    # `kernel.asm["ptx"]`: nothing runs it, so it is made when a program asks.
    compiler: Any = sys.modules["triton.compiler.compiler"]
    original = compiler.AsmDict.__missing__

    def missing(self: Any, key: str) -> Any:
        if key not in ("ttgir", "llir", "ptx", "cubin") or "cpp" not in self:
            return original(self, key)
        own = importlib.import_module("torch_loom.kernels.triton.compiler")
        self[key] = own.made_for_gpu(self, key)
        return self[key]

    CUDA_NAME.put(compiler.AsmDict, __missing__=missing)


def _replace_backend(name: str, chip_of: Callable[[int], Chip]) -> None:
    # Triton takes one backend for a target and one driver: those of NVIDIA would look for its driver.
    backends: Any = sys.modules["triton.backends"]
    for key, backend in list(backends.backends.items()):
        # AMD's would ask for devices, after which no child may be forked that uses them.
        is_other = key == "amd" or (key != "nvidia" and not backend.driver.is_active())
        if not is_other:
            del backends.backends[key]
    compiler = importlib.import_module("torch_loom.kernels.triton.compiler")
    driver = importlib.import_module("torch_loom.kernels.triton.driver")
    driver.set_device_name(name)
    importlib.import_module("torch_loom.kernels.triton.device_chips").set_chip_of(chip_of)
    backends.backends["nvidia"] = backends.Backend(compiler.HostBackend, driver.HostDriver)


def _time_no_choices() -> None:
    # All choices have the same result: with equal times Triton takes the first that the program's own pruning
    # leaves and that a GPU could launch; those behind it are never compiled. The cost model needs the
    # intermediate code of all.
    autotuner: Any = sys.modules["triton.runtime.autotuner"]

    def bench(self: Any, *args: Any, config: Any, **meta: Any) -> list[float]:
        conflicts = meta.keys() & config.kwargs.keys()
        if conflicts:
            # As Triton says it.
            raise ValueError(
                f"Conflicting meta-parameters: {', '.join(conflicts)}. Make sure that you don't re-define "
                "auto-tuned symbols."
            )
        by_model = loom_config.value(settings.AUTOTUNE) == "model"
        seconds = 0.0
        # `nargs` is a new one for each choice among configurations.
        if by_model or getattr(self, "_loom_has_chosen_for", None) is not self.nargs:
            if not _can_launch(self, args, config, meta):
                seconds = math.inf
            elif by_model:
                forecast = importlib.import_module("torch_loom.kernels.triton.forecast")
                seconds = forecast.seconds_of_choice(self, args, config, meta)
            else:
                self._loom_has_chosen_for = self.nargs
        return [seconds] * 3  # the quantiles that Triton asks for

    CUDA_NAME.put(autotuner.Autotuner, _bench=bench)


def _can_launch(tuner: Any, arguments: tuple[Any, ...], config: Any, meta: dict[str, Any]) -> bool:
    """Whether a kernel can be compiled with a configuration; the program's hooks see why not."""
    errors = importlib.import_module("triton.compiler.errors")
    resources = importlib.import_module("triton.runtime.errors").OutOfResources
    current = {**meta, **config.all_kwargs()}
    named = {**tuner.nargs, **current}
    try:
        threads = 32 * (current.get("num_warps") or 4)
        if threads > _MAX_THREADS:
            raise resources(threads, _MAX_THREADS, "threads")
        if config.pre_hook is not None:  # as Triton does: blocks of descriptors depend on the configuration
            config.pre_hook(named)
        # Makes its text and does not compile it for the host.
        tuner.fn.run(*arguments, **{**current, "warmup": True})
    except (errors.CompileTimeAssertionFailure, resources) as error:
        tuner.pre_hook(named)
        tuner.post_hook(named, exception=error)
        return False
    return True


_MAX_THREADS = 1024
