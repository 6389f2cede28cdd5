"""First use: what happens once, when a device is first needed."""

from __future__ import annotations

import os
import threading
import traceback
from collections.abc import Callable

from torch_loom import _C, config
from torch_loom.errors import DeferredCallError, ForkError, NoDeviceError

__all__ = ["_is_in_bad_fork", "_lazy_call", "_lazy_init", "init", "is_initialized"]

_lock = threading.RLock()
_initializing = False
_ready = False


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
        ConfigurationError: a setting has a bad value.
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
                _C.initialize(settings.driver, settings.memory_bytes, list(settings.physical_devices))
            config.freeze()
            try:
                _deferred.run()
            finally:
                # Last, so that no other thread draws random numbers before the deferred seeds are set.
                _ready = True
        finally:
            _initializing = False


def _no_device_message(settings: config.Settings) -> str:
    cause = config.describe(config.VISIBLE_DEVICES) if settings.devices else config.describe(config.DEVICES)
    return f"No {settings.device_name} devices are available: {cause}"


def _lazy_call(callback: Callable[[], None], kind: str | None = None) -> None:
    """Call ``callback`` now if the devices are in use, else when they first are.

    ``kind`` names calls of which only the last matters, such as seeds: a later one replaces an earlier one.
    """
    with _lock:
        if not is_initialized():
            _deferred.add(callback, kind)
            return
    callback()


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
