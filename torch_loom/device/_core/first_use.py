"""First use: what happens once, when a device is first needed."""

from __future__ import annotations

import atexit
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping
from typing import Any

from torch_loom import _C, config
from torch_loom.errors import DeferredCallError, ForkError, NoDeviceError

__all__ = ["init", "is_initialized"]

_lock = threading.RLock()
_initializing = False
_ready = False
_ChipLoader = Callable[[str], "tuple[_C.Chip, Mapping[str, float]]"]
_load_chip: _ChipLoader | None = None
_figures: Mapping[str, float] = {}
_at_first_use: list[Callable[[config.Settings], None]] = []


class _Deferred:
    """Calls made before first use, in order; of the seeds only the last of each kind is kept."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[Callable[[], None], list[str]]] = {}

    def add(self, callback: Callable[[], None], kind: str | None) -> None:
        key: object = object() if kind is None else kind
        self._calls.pop(key, None)
        self._calls[key] = (callback, traceback.format_stack()[:-2])

    def run(self) -> None:
        calls, self._calls = list(self._calls.values()), {}
        failure: DeferredCallError | None = None
        for callback, stack in calls:
            try:
                callback()
            except Exception as error:
                if failure is None:
                    failure = DeferredCallError(
                        f"A call made before the devices were first used failed: {error}\n\n"
                        f"It was made here:\n{''.join(stack)}"
                    )
                    failure.__cause__ = error
        if failure is not None:
            raise failure


_deferred = _Deferred()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked from one that had already used the devices."""
    return _C.is_in_bad_fork()


def is_initialized() -> bool:
    """Return whether the devices have been used in this process."""
    return _ready and not _C.is_in_bad_fork()


def init() -> None:
    """Initialise the devices now instead of at first use. Does nothing the second time.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
        NoDeviceError: there are no devices.
        ForkError: the process was forked from one that had used the devices.
    """
    _lazy_init()


def _lazy_init() -> None:
    """Initialise the devices if that has not been done; PyTorch and the extension call this at first use."""
    global _initializing, _ready
    if is_initialized():
        return
    name = config.device_name()
    if _C.is_in_bad_fork():
        raise ForkError(
            f"Cannot re-initialize {name.upper()} in forked subprocess. To use {name.upper()} with "
            "multiprocessing, you must use the 'spawn' start method"
        )
    with _lock:
        # The lock is reentrant: a deferred call comes back here through the functions that it uses.
        if _ready or _initializing:
            return
        settings = config.resolve()
        if not settings.physical_devices:
            raise NoDeviceError(_no_device_message(settings))
        _initializing = True
        try:
            if not _C.is_initialized():
                _initialize_core(settings)
            config.freeze()
            try:
                _deferred.run()
            finally:
                # Last, so that no other thread draws random numbers before the deferred seeds are set.
                _ready = True
        finally:
            _initializing = False


def _initialize_core(settings: config.Settings) -> None:
    global _figures
    chip, _figures = _read_chip(settings)
    is_lazy = chip.lazy_memory if settings.memory_policy is None else settings.memory_policy == "lazy"
    memory_bytes = chip.memory_bytes if settings.memory_bytes is None else settings.memory_bytes
    seed = 0
    if settings.launch == "chaos":
        import secrets  # here: it takes longer to import than all of this file

        seed = secrets.randbits(64) if settings.chaos_seed is None else settings.chaos_seed
    _C.initialize(
        driver=settings.driver,
        memory_bytes=memory_bytes * settings.npus_per_device,
        physical_devices=list(settings.physical_devices),
        chip=chip,
        lazy=is_lazy,
        launch=settings.launch,
        chaos_seed=seed,
        protect=settings.protect,
        refuse_fallbacks=settings.fallback == "error",
    )
    if settings.launch == "chaos":
        atexit.register(_tell_chaos_seed, seed)
    for callback in _at_first_use:
        callback(settings)


def at_first_use(callback: Callable[[config.Settings], None]) -> None:
    """Have a file of this layer called with the settings when the devices have been initialised.

    The order is that of the imports. This file is below all others and imports none of them.
    """
    _at_first_use.append(callback)


def _tell_chaos_seed(seed: int) -> None:
    # The interpreter sets it for an exception that nobody caught, and test runners for a failed test.
    if getattr(sys, "last_value", None) is not None:
        print(
            f"torch-loom: launch mode chaos, seed {seed}; TORCH_LOOM_CHAOS_SEED={seed} repeats this order",
            file=sys.stderr,
        )


def set_chip_loader(load: _ChipLoader) -> None:
    """Say how a chip is read, by name or path: this layer knows none itself."""
    global _load_chip
    _load_chip = load


def _read_chip(settings: config.Settings) -> tuple[_C.Chip, Mapping[str, float]]:
    assert _load_chip is not None, "torch_loom._register sets it"
    return _load_chip(settings.chip)


def _chip() -> _C.Chip:
    """Return the chip that the devices are, or would be; does not initialise them.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    return _C.chip() if is_initialized() else _read_chip(config.resolve())[0]


def _chip_figures() -> Mapping[str, float]:
    """Return the figures of that chip, by the names of :class:`torch_loom.chips.Chip`; 0: not known.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    return _figures if is_initialized() else _read_chip(config.resolve())[1]


def _no_device_message(settings: config.Settings) -> str:
    setting: config.Setting[Any] = config.DEVICES
    if settings.devices:
        is_loom = config.raw_value(config.VISIBLE_DEVICES)[0] is not None
        setting = config.VISIBLE_DEVICES if is_loom else config.RBLN_DEVICES
    return f"No {settings.device_name} devices are available: {config.describe(setting)}"


def _lazy_call(callable: Callable[[], None], kind: str | None = None) -> None:
    """Call ``callable`` now if the devices are in use, else when they first are.

    ``kind`` names calls of which only the last matters, such as seeds: a later one replaces an earlier one.
    """
    with _lock:
        if not is_initialized():
            _deferred.add(callable, kind)
            return
    callable()


def _device_count() -> int:
    """Return how many devices there are, or would be, without initialising them."""
    return _C.device_count() if _ready else len(config.resolve().physical_devices)


def _peek_device_count() -> int:
    # For C++ callers that may not throw; a bad configuration is reported by _lazy_init at first use.
    try:
        return len(config.resolve().physical_devices)
    except Exception:
        return 0


def _renew_lock() -> None:
    # Another thread of the parent may have held it while the process was forked.
    global _lock, _initializing
    _lock = threading.RLock()
    _initializing = False


os.register_at_fork(after_in_child=_renew_lock)
_C.set_initializer(_lazy_init)
_C.set_device_count_peek(_peek_device_count)
