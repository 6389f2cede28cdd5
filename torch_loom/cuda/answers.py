"""What PyTorch says of CUDA outside ``torch.cuda``: versions, profiles, compiled models."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.autograd.profiler
from torch.backends import ContextProp
from torch.profiler import ProfilerActivity

from torch_loom import _C, config
from torch_loom.cuda import release
from torch_loom.cuda.names import not_applicable
from torch_loom.device._core import first_use
from torch_loom.patches.declared import CUDA_NAME


def give() -> None:
    """Put the answers in place."""
    config.cuda_version("")  # raises ConfigurationError for a bad value
    _say_version()
    _answer_for_cudnn()
    _answer_for_cusparselt()
    _refuse_flags_of_other_chips()
    _profile_devices()


def _say_version() -> None:
    # Which chip the devices are is known when they are first used, and may be asked for before.
    module: Any = torch.version
    CUDA_NAME.remove(module, "cuda")

    def answer(name: str) -> str | None:
        if name != "cuda":
            raise AttributeError(f"module {module.__name__!r} has no attribute {name!r}")
        return release.cuda_version()

    def settle(_: config.Settings) -> None:
        # Dynamo reads the attributes of modules from their dictionaries.
        vars(module).setdefault("cuda", release.cuda_version())
        # torch.utils.checkpoint reads it as a variable; without it, random numbers would not be replayed.
        CUDA_NAME.put(torch.cuda, _initialized=True)

    CUDA_NAME.put(module, __getattr__=answer)
    first_use.at_first_use(settle)


def _refuse_flags_of_other_chips() -> None:
    # PyTorch writes nvcc's options from names such as sm_90.
    original = torch.cuda.get_gencode_flags

    @functools.wraps(original)
    def get_gencode_flags() -> str:
        if not all(name.startswith("sm_") for name in torch.cuda.get_arch_list()):
            not_applicable.refuse("get_gencode_flags")
        return original()

    CUDA_NAME.put(torch.cuda, get_gencode_flags=get_gencode_flags)


def _profile_devices() -> None:
    # A CPU build says that it profiles the CPU alone, and has Kineto ask devices of the type PrivateUse1
    # only. What it calls so is ours: rows come back with CUDA's type.
    profiler: Any = torch.autograd.profiler
    ours, theirs = ProfilerActivity.CUDA, ProfilerActivity.PrivateUse1

    def supported() -> set[ProfilerActivity]:
        return {ProfilerActivity.CPU, ours}

    def translated(function: Any) -> Any:
        @functools.wraps(function)
        def call(first: Any, activities: set[ProfilerActivity], *args: Any, **kwargs: Any) -> Any:
            as_known = {theirs if activity == ours else activity for activity in activities}
            _C.keep_kineto_on_host()
            return function(first, as_known, *args, **kwargs)

        return call

    kineto = profiler.ProfilerState.KINETO
    config_of = profiler.profile.config

    @functools.wraps(config_of)
    def config_(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.profiler_kind == kineto and ours in self.kineto_activities:
            self.profiler_kind = profiler.ProfilerState.KINETO_PRIVATEUSE1
        return config_of(self, *args, **kwargs)

    CUDA_NAME.put(torch.autograd, _supported_activities=supported)
    CUDA_NAME.put(
        profiler,
        _supported_activities=supported,
        **{
            name: translated(getattr(profiler, name))
            for name in ("_prepare_profiler", "_enable_profiler", "_toggle_collection_dynamic")
        },
    )
    CUDA_NAME.put(profiler.profile, config=config_)


def _answer_for_cusparselt() -> None:
    # Its products are there; which algorithm computes them is no choice, as on newer versions of it.
    def is_available() -> bool:
        """Return whether the default wheel of this PyTorch has cuSPARSELt."""
        return release.cuda_version() is not None

    def version() -> int | None:
        """Return the version of cuSPARSELt in the default wheel of this PyTorch."""
        return release.cusparselt_number() if is_available() else None

    CUDA_NAME.put(torch.backends.cusparselt, is_available=is_available, version=version)


_library: Any = None  # kept: what it registered goes with it


def _answer_for_cudnn() -> None:
    # PyTorch asks on CUDA devices whether cuDNN or MIOpen takes the call; the engine's own kernel does.
    global _library

    def is_available() -> bool:
        """Return whether the default wheel of this PyTorch has cuDNN."""
        return release.cuda_version() is not None

    def version() -> int | None:
        """Return the version of cuDNN in the default wheel of this PyTorch."""
        return release.cudnn_number() if is_available() else None

    def is_acceptable(tensor: torch.Tensor) -> bool:
        """Return whether cuDNN would take a tensor: no kernel of it runs."""
        return False

    CUDA_NAME.put(
        torch.backends.cudnn, is_available=is_available, version=version, is_acceptable=is_acceptable
    )
    old_names: Any = torch._deprecated_attrs
    old_names["has_cudnn"] = is_available
    make_flag: Any = ContextProp
    limit = make_flag(torch._C._cuda_get_cudnn_benchmark_limit, torch._C._cuda_set_cudnn_benchmark_limit)
    CUDA_NAME.put(type(torch.backends.cudnn), benchmark_limit=limit)
    library: Any = torch.library.Library  # has no types
    _library = library("aten", "IMPL", "CUDA")
    for op in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):
        for name in (op, f"{op}.Tensor"):
            _library.impl(name, lambda *_: False)
