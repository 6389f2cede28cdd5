"""``torch.cuda.tunable``: TunableOp's settings, which are kept and change nothing.

TunableOp times the matrix products of cuBLAS and rocBLAS and takes the fastest. Here each op has one kernel,
so there is nothing to choose: results stay empty, and a file of untuned products is refused. Settings are the
process's. The variables ``PYTORCH_TUNABLEOP_*`` are not read: the values before are TunableOp's without them.
A value of another type than a setter's raises RuntimeError, as PyTorch's binding does.
"""

from __future__ import annotations

from dataclasses import dataclass

import torch

from torch_loom.cuda.names.not_applicable import functions

globals().update(functions("tunable"))

__all__ = [
    "enable",
    "get_filename",
    "get_max_tuning_duration",
    "get_max_tuning_iterations",
    "get_results",
    "get_rotating_buffer_size",
    "get_validators",
    "is_enabled",
    "read_file",
    "record_untuned_enable",
    "record_untuned_is_enabled",
    "set_filename",
    "set_max_tuning_duration",
    "set_max_tuning_iterations",
    "set_numerical_check_tolerances",
    "set_rotating_buffer_size",
    "tuning_enable",
    "tuning_is_enabled",
    *sorted(functions("tunable")),
]


@dataclass
class _Settings:
    """What a program has set; the values before are those of PyTorch's TunableOp."""

    enabled: bool = False
    tuning: bool = True
    recording: bool = False
    duration_ms: int = 30
    iterations: int = 100
    filename: str = "tunableop_results0.csv"
    rotating_buffer_mib: int = 0
    falls_back: bool = False


_settings = _Settings()


def _expect(function: str, what: str, value: object, is_right: bool) -> None:
    if not is_right:
        kind = type(value).__name__
        raise RuntimeError(f"torch.cuda.tunable.{function} expects {what}, but got {value!r} ({kind})")


def _flag(function: str, value: object) -> bool:
    _expect(function, "a bool", value, isinstance(value, bool))
    return bool(value)


def _count(function: str, value: int) -> int:
    """Return a whole number; one below 0 counts as 0, as in TunableOp."""
    is_whole = isinstance(value, int) and not isinstance(value, bool) and -(2**63) <= value < 2**63
    _expect(function, "an int of 64 bits", value, is_whole)
    return max(value, 0)


def enable(val: bool = True) -> None:
    """Keep whether TunableOp is to be used."""
    _settings.enabled = _flag("enable", val)


def is_enabled() -> bool:
    """Return what :func:`enable` was given last; False before."""
    return _settings.enabled


def tuning_enable(val: bool = True) -> None:
    """Keep whether products without a known best kernel are to be timed."""
    _settings.tuning = _flag("tuning_enable", val)


def tuning_is_enabled() -> bool:
    """Return what :func:`tuning_enable` was given last; True before."""
    return _settings.tuning


def record_untuned_enable(val: bool = True) -> None:
    """Keep whether products that are not timed are to be written to a file. None is."""
    _settings.recording = _flag("record_untuned_enable", val)


def record_untuned_is_enabled() -> bool:
    """Return what :func:`record_untuned_enable` was given last; False before."""
    return _settings.recording


def set_max_tuning_duration(duration: int) -> None:
    """Keep for how many milliseconds a product may be timed; 0: without a limit."""
    _settings.duration_ms = _count("set_max_tuning_duration", duration)


def get_max_tuning_duration() -> int:
    """Return what :func:`set_max_tuning_duration` was given last, in milliseconds; 30 before."""
    return _settings.duration_ms


def set_max_tuning_iterations(iterations: int) -> None:
    """Keep how often a product may be timed; 0: without a limit."""
    _settings.iterations = _count("set_max_tuning_iterations", iterations)


def get_max_tuning_iterations() -> int:
    """Return what :func:`set_max_tuning_iterations` was given last; 100 before."""
    return _settings.iterations


def set_filename(filename: str, insert_device_ordinal: bool = False) -> None:
    """Keep the name of the file of results, which is never written.

    Args:
        filename: the name.
        insert_device_ordinal: whether the current device's number is put before the name's suffix.
    """
    _expect("set_filename", "a string", filename, isinstance(filename, str))
    _flag("set_filename", insert_device_ordinal)
    stem, dot, suffix = filename.rpartition(".")
    if insert_device_ordinal:
        index = torch.accelerator.current_device_index()
        filename = f"{stem}{index}{dot}{suffix}" if dot else f"{filename}{index}"
    _settings.filename = filename


def get_filename() -> str:
    """Return the name of the file of results."""
    return _settings.filename


def get_results() -> tuple[tuple[str, str, str, float], ...]:
    """Return the results of timing, (op, sizes, kernel, milliseconds) each: none."""
    return ()


def get_validators() -> tuple[tuple[str, str], ...]:
    """Return what results depend on: PyTorch's version."""
    return (("PT_VERSION", torch.__version__.partition("+")[0]),)


def read_file(filename: str | None = None) -> bool:
    """Return whether results were read from a file: False, there are none to use.

    Args:
        filename: the file, which is not opened; :func:`get_filename` where None.
    """
    _expect("read_file", "a string or None", filename, filename is None or isinstance(filename, str))
    return False


def set_rotating_buffer_size(buffer_size: int) -> None:
    """Keep the size of the buffer, in MiB, that timing would rotate its operands through."""
    _settings.rotating_buffer_mib = _count("set_rotating_buffer_size", buffer_size)


def get_rotating_buffer_size() -> int:
    """Return what :func:`set_rotating_buffer_size` was given last, in MiB; 0 before."""
    return _settings.rotating_buffer_mib


def set_numerical_check_tolerances(
    enable: bool, atol: float | None = None, rtol: float | None = None
) -> None:
    """Take the tolerances with which timed products would be compared, and compare none.

    Args:
        enable: whether they would be compared.
        atol: the absolute tolerance, in the unit of the products; PyTorch's own where None.
        rtol: the relative tolerance; PyTorch's own where None.
    """
    _flag("set_numerical_check_tolerances", enable)
    for limit in (atol, rtol):
        is_number = isinstance(limit, int | float) and not isinstance(limit, bool)
        _expect("set_numerical_check_tolerances", "a float or None", limit, limit is None or is_number)


# From PyTorch 2.15, whose own module calls these.


def wildcard_fallback_enable(val: bool = True) -> None:
    """Keep whether a product may take the kernel of products that are alike but for some sizes."""
    _settings.falls_back = _flag("wildcard_fallback_enable", val)


def wildcard_fallback_is_enabled() -> bool:
    """Return what :func:`wildcard_fallback_enable` was given last; False before."""
    return _settings.falls_back


def push_dynamic_dims_mask(bits: int) -> object:
    """Do nothing but return what :func:`pop_dynamic_dims_mask` takes: no product is looked up by sizes."""
    _count("push_dynamic_dims_mask", bits)
    return object()


def pop_dynamic_dims_mask(handle: object) -> None:
    """Do nothing, as :func:`push_dynamic_dims_mask`."""


def clear_all() -> None:
    """Do nothing: there are no results."""
