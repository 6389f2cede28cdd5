"""Every error and warning class that torch-loom raises from Python.

Each derives from :class:`LoomError` and from the built-in class that PyTorch's CUDA module raises in the same
place, so that ``except RuntimeError`` and ``except ValueError`` written for CUDA keep working.
Out of memory is PyTorch's own ``torch.OutOfMemoryError``.
"""

from __future__ import annotations

__all__ = [
    "AlreadyInitializedError",
    "ChipError",
    "ConfigurationError",
    "DeferredCallError",
    "DeviceTypeError",
    "ExtensionError",
    "FallbackError",
    "FallbackWarning",
    "ForkError",
    "InvalidDeviceError",
    "LoomError",
    "NoDeviceError",
    "VersionMismatchError",
]


class LoomError(Exception):
    """Base of all errors of torch-loom."""


class ConfigurationError(LoomError, ValueError):
    """A setting has a bad value; the message names the setting, the value and the values it takes."""


class ChipError(ConfigurationError):
    """A chip description cannot be used; the message names file, key, value and what is allowed."""


class AlreadyInitializedError(LoomError, RuntimeError):
    """A setting was changed after the devices were first used."""


class VersionMismatchError(LoomError, RuntimeError):
    """The extension was built against another torch than the one that is running."""


class ExtensionError(LoomError, RuntimeError):
    """The extension ``torch_loom._C`` is missing, or could not be loaded or registered."""


class NoDeviceError(LoomError, RuntimeError):
    """A device was used although the configuration has none."""


class InvalidDeviceError(LoomError, RuntimeError):
    """A device index outside the devices that exist."""


class DeviceTypeError(LoomError, ValueError):
    """Something that is no device of this backend where one was expected."""


class ForkError(LoomError, RuntimeError):
    """A device was used in a forked child of a process that had used it before."""


class FallbackError(LoomError, NotImplementedError):
    """An op or dtype that the chip does not do itself, under ``TORCH_LOOM_FALLBACK=error``."""


class FallbackWarning(LoomError, UserWarning):
    """An op or dtype that the chip does not do itself, under ``TORCH_LOOM_FALLBACK=warn``."""


class DeferredCallError(LoomError, RuntimeError):
    """A call made before first use, such as a seed, failed when the devices were initialised."""
