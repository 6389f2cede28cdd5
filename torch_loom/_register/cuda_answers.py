"""What PyTorch says of CUDA outside ``torch.cuda``: versions, profiles, compiled models."""

from __future__ import annotations

import functools
from typing import Any

import torch
import torch.autograd.profiler
from torch.profiler import ProfilerActivity

from torch_loom import config


def give() -> None:
    """Put the answers in place."""
    _refuse_cudnn()
    version = config.cuda_version()
    if version is not None:
        torch.version.cuda = version
    _profile_devices()


def _profile_devices() -> None:
    # A CPU build says that it profiles the CPU alone, and has Kineto ask devices of the type PrivateUse1
    # only. What it calls so is ours: rows come back with CUDA's type.
    profiler: Any = torch.autograd.profiler
    ours, theirs = ProfilerActivity.CUDA, ProfilerActivity.PrivateUse1

    def supported() -> set[ProfilerActivity]:
        return {ProfilerActivity.CPU, ours}

    def translated(function: Any) -> Any:
        @functools.wraps(function)
        def call(settings: Any, activities: set[ProfilerActivity], *args: Any, **kwargs: Any) -> Any:
            as_known = {theirs if activity == ours else activity for activity in activities}
            return function(settings, as_known, *args, **kwargs)

        return call

    kineto = profiler.ProfilerState.KINETO
    config_of = profiler.profile.config

    @functools.wraps(config_of)
    def config_(self: Any, *args: Any, **kwargs: Any) -> Any:
        if self.profiler_kind == kineto and ours in self.kineto_activities:
            self.profiler_kind = profiler.ProfilerState.KINETO_PRIVATEUSE1
        return config_of(self, *args, **kwargs)

    profiler._supported_activities = supported
    torch.autograd._supported_activities = supported  # type: ignore[attr-defined]
    for name in ("_prepare_profiler", "_enable_profiler", "_toggle_collection_dynamic"):
        original = getattr(profiler, name)
        if name == "_toggle_collection_dynamic":
            setattr(profiler, name, _translated_last(original, ours, theirs))
        else:
            setattr(profiler, name, translated(original))
    profiler.profile.config = config_


def _translated_last(function: Any, ours: Any, theirs: Any) -> Any:
    @functools.wraps(function)
    def call(enabled: bool, activities: set[Any]) -> Any:
        return function(enabled, {theirs if activity == ours else activity for activity in activities})

    return call


_library: Any = None  # kept: what it registered goes with it


def _refuse_cudnn() -> None:
    # PyTorch asks on CUDA devices whether cuDNN or MIOpen takes the call; the engine's own kernel does.
    global _library
    # RNNs ask for each tensor of theirs, and are warned that PyTorch was built without it. The module's own
    # names stand in its dictionary; to set an attribute would set a flag of cuDNN's.
    torch.backends.cudnn.__dict__["is_acceptable"] = lambda tensor: False
    library: Any = torch.library.Library  # has no types
    _library = library("aten", "IMPL", "CUDA")
    for op in ("_use_cudnn_ctc_loss", "_use_miopen_ctc_loss"):
        for name in (op, f"{op}.Tensor"):
            _library.impl(name, lambda *_: False)
