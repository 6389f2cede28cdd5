"""Waiting: which synchronisation was not asked for, and keeping a device busy on purpose."""

from __future__ import annotations

from torch_loom import _C
from torch_loom.device._core.first_use import _chip_figures, _lazy_init

__all__ = ["get_sync_debug_mode", "set_sync_debug_mode"]

_MODES = ("default", "warn", "error")
_DEFAULT_CLOCK_MHZ = 1000
_MAX_SLEEP_NS = 2**62


def set_sync_debug_mode(debug_mode: int | str) -> None:
    """Choose what happens when an op is about to make the host wait for a device implicitly.

    That is: reading a value (``item``, ``tolist``, printing, ``if tensor:``), a copy between host and device
    without ``non_blocking=True``, ops whose result's size or value the host must know (``nonzero``, indexing
    by a mask or by indices of the host's, ``unique``, ``torch.equal``). ``synchronize()`` of a device, stream
    or event is what it says, and passes. Holds for all threads.

    Args:
        debug_mode: ``"default"`` or 0: nothing; ``"warn"`` or 1: a UserWarning that names the op and the
            Python line; ``"error"`` or 2: the op is refused.

    Raises:
        RuntimeError: there is no such mode.
        TypeError: ``debug_mode`` is neither text nor a whole number.
        ImplicitSynchronizationError: later, from the op, under ``"error"``.
    """
    _lazy_init()
    if not isinstance(debug_mode, (int, str)) or isinstance(debug_mode, bool):
        raise TypeError(f"debug_mode must be a str or an int, got {type(debug_mode).__name__} {debug_mode!r}")
    number = _MODES.index(debug_mode) if debug_mode in _MODES else debug_mode
    if not isinstance(number, int) or not 0 <= number < len(_MODES):
        raise RuntimeError(
            f"invalid value of debug_mode, got {debug_mode!r}; expected one of 'default' or 0, 'warn' or 1, "
            "'error' or 2"
        )
    _C.set_sync_debug_mode(number)


def get_sync_debug_mode() -> int:
    """Return what :func:`set_sync_debug_mode` set: 0 (default), 1 (warn) or 2 (error)."""
    _lazy_init()
    return _C.sync_debug_mode()


def _sleep(cycles: int) -> None:
    """Keep the current stream busy for some cycles of the chip's clock; 1 GHz if its clock is not known.

    The host goes on, unless the launch mode is ``blocking``. A graph keeps it.

    Raises:
        TypeError: ``cycles`` is no int.
        ValueError: it is negative, or more than 2⁶² nanoseconds.
    """
    if not isinstance(cycles, int) or isinstance(cycles, bool):
        raise TypeError(f"cycles must be an int, got {type(cycles).__name__} {cycles!r}")
    _lazy_init()
    clock_mhz = int(_chip_figures()["clock_mhz"]) or _DEFAULT_CLOCK_MHZ
    nanoseconds = cycles * 1000 // clock_mhz
    if not 0 <= nanoseconds <= _MAX_SLEEP_NS:
        raise ValueError(f"cycles must be 0 to 2**62 nanoseconds at {clock_mhz} MHz, got {cycles}")
    _C.sleep(nanoseconds)


def _busy_wait_for_flag() -> None:
    """Keep the current stream busy until :func:`_clear_flag` has run on another stream of the device.

    Raises:
        RuntimeError: the launch mode is not ``auto``, or the stream is captured: the flag could not be
            cleared.
    """
    _lazy_init()
    _C.busy_wait_for_flag()


def _clear_flag() -> None:
    """Have the current stream clear the device's flag, in its turn: what waits for it goes on.

    Raises:
        RuntimeError: as in :func:`_busy_wait_for_flag`.
    """
    _lazy_init()
    _C.clear_flag()
