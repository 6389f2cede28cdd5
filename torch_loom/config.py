"""Every setting of torch-loom, and the only place that reads environment variables.

A setting is declared once, in :data:`SETTINGS`. Its value is that of :func:`configure`, else that of its
environment variable, else its default. Values are read when the devices are first used, not at import; only
the device name is needed at import.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from typing import Generic, Literal, TypeVar, cast

from torch_loom.errors import AlreadyInitializedError, ConfigurationError

__all__ = [
    "ENV_PREFIX",
    "SETTINGS",
    "Setting",
    "Settings",
    "configure",
    "describe",
    "device_name",
    "parse_size",
    "raw_value",
    "resolve",
]

T = TypeVar("T")
Source = Literal["configure", "environment", "default"]

ENV_PREFIX = "TORCH_LOOM_"
MAX_DEVICES = 64
MIN_MEMORY_BYTES = 2 << 20
MAX_MEMORY_BYTES = 16 << 40

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?", re.IGNORECASE | re.ASCII)
_UNIT_BYTES = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}


def parse_size(text: str) -> int:
    """Return the number of bytes that a human size such as ``512MiB``, ``1.5GiB`` or ``4096`` means.

    Units: B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (powers of 1000), in any case; without a
    unit the number is bytes. A fraction of a byte is dropped.

    Raises:
        ValueError: the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] is None and "." in match[1]):
        raise ValueError("not a size in bytes")
    return int(Fraction(match[1]) * _UNIT_BYTES[(match[2] or "B").upper()])


def _parse_int(text: str) -> int:
    # int() also takes "1_000" and other digits than ASCII's; a setting does not.
    if re.fullmatch(r"[0-9]{1,9}", text.strip()) is None:
        raise ValueError("not a whole number")
    return int(text)


def _parse_devices(text: str) -> int:
    count = _parse_int(text)
    if count > MAX_DEVICES:
        raise ValueError("too many")
    return count


def _parse_memory(text: str) -> int:
    size_bytes = parse_size(text)
    if not MIN_MEMORY_BYTES <= size_bytes <= MAX_MEMORY_BYTES:
        raise ValueError("out of range")
    return size_bytes


def _parse_indices(text: str) -> tuple[int, ...]:
    if not text.strip():
        return ()
    indices = tuple(_parse_int(part) for part in text.split(","))
    if len(set(indices)) != len(indices):
        raise ValueError("an index appears twice")
    return indices


def _parse_driver(text: str) -> str:
    if text not in ("virtual", "null"):
        raise ValueError("no such driver")
    return text


def _parse_device_name(text: str) -> str:
    # c10::Device reads only letters and underscores as the type of a device string.
    if re.fullmatch(r"[A-Za-z_]+", text) is None:
        raise ValueError("not a device name")
    return text


@dataclass(frozen=True)
class Setting(Generic[T]):
    """The declaration of one setting.

    Attributes:
        name: its name in :class:`Settings`, and the keyword of :func:`configure` if ``configurable``.
        env: the environment variable.
        type_name: the type in words, for tables.
        default: the default as it would stand in the environment; None if it is "not set".
        allowed: the values it takes, in words, for tables and error messages.
        meaning: what it does, one sentence.
        parse: makes the value from text; raises ValueError with the reason.
        configurable: whether :func:`configure` takes it.
    """

    name: str
    env: str
    type_name: str
    default: str | None
    allowed: str
    meaning: str
    parse: Callable[[str], T]
    configurable: bool = True


DEVICE_NAME = Setting(
    name="device_name",
    env="TORCH_LOOM_DEVICE_NAME",
    type_name="name",
    default="loom",
    allowed="letters and underscores, and not a name that torch or torch.Tensor already has",
    meaning="The name of the device type and of the module in torch; read when torch is imported.",
    parse=_parse_device_name,
    configurable=False,
)
DEVICES = Setting(
    name="devices",
    env="TORCH_LOOM_DEVICES",
    type_name="integer",
    default="2",
    allowed=f"0 to {MAX_DEVICES}",
    meaning="How many devices the machine has.",
    parse=_parse_devices,
)
MEMORY = Setting(
    name="memory",
    env="TORCH_LOOM_MEMORY",
    type_name="size",
    default="16GiB",
    allowed="2MiB to 16TiB, as bytes or with a unit (512MiB, 1.5GiB, 16GiB)",
    meaning="The memory capacity of each device; host memory is used only for what is touched.",
    parse=_parse_memory,
)
VISIBLE_DEVICES = Setting(
    name="visible_devices",
    env="TORCH_LOOM_VISIBLE_DEVICES",
    type_name="list of integers",
    default=None,
    allowed="device indices without repetition, separated by commas (1,0); empty for none",
    meaning="Which of the devices the program sees, numbered anew from 0 in this order; all if not set.",
    parse=_parse_indices,
)
DRIVER = Setting(
    name="driver",
    env="TORCH_LOOM_DRIVER",
    type_name="choice",
    default="virtual",
    allowed="virtual, null",
    meaning="virtual computes on host memory and threads; null computes nothing (shapes and memory only).",
    parse=_parse_driver,
)

SETTINGS: tuple[Setting[object], ...] = cast(
    "tuple[Setting[object], ...]", (DEVICE_NAME, DEVICES, MEMORY, VISIBLE_DEVICES, DRIVER)
)


@dataclass(frozen=True)
class Settings:
    """The values of all settings, checked against one another.

    Attributes:
        device_name: the device type, ``"loom"`` by default.
        devices: how many physical devices there are.
        memory_bytes: the capacity of each device.
        visible_devices: the physical indices the program sees; None for all.
        driver: ``"virtual"`` or ``"null"``.
    """

    device_name: str
    devices: int
    memory_bytes: int
    visible_devices: tuple[int, ...] | None
    driver: str

    @property
    def physical_devices(self) -> tuple[int, ...]:
        """The physical index of each device, by the index that the program uses."""
        return tuple(range(self.devices)) if self.visible_devices is None else self.visible_devices


_overrides: dict[str, str] = {}
_frozen = False


def raw_value(setting: Setting[T]) -> tuple[str | None, Source]:
    """Return the unchecked text of a setting and where it comes from."""
    return _raw_value(setting, _overrides)


def _raw_value(setting: Setting[T], overrides: Mapping[str, str]) -> tuple[str | None, Source]:
    if setting.name in overrides:
        return overrides[setting.name], "configure"
    if setting.env in os.environ:
        return os.environ[setting.env], "environment"
    return setting.default, "default"


def describe(setting: Setting[T]) -> str:
    """Return what sets a setting, and to what, as in ``TORCH_LOOM_DEVICES='2'``."""
    return _describe(setting, *raw_value(setting))


def _describe(setting: Setting[T], text: object, source: Source) -> str:
    return f"configure({setting.name}={text!r})" if source == "configure" else f"{setting.env}={text!r}"


def _complaint(setting: Setting[T], text: object, source: Source, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{_describe(setting, text, source)}: {reason}. Allowed: {setting.allowed}.")


def _value(setting: Setting[T], overrides: Mapping[str, str]) -> T | None:
    text, source = _raw_value(setting, overrides)
    if text is None:
        return None
    try:
        return setting.parse(text)
    except ValueError as error:
        raise _complaint(setting, text, source, str(error)) from None


def _required(setting: Setting[T], overrides: Mapping[str, str]) -> T:
    value = _value(setting, overrides)
    assert value is not None, f"{setting.name} has no default"
    return value


def _reject_unknown_variables() -> None:
    known = [setting.env for setting in SETTINGS]
    for variable in sorted(os.environ):
        if variable.startswith(ENV_PREFIX) and variable not in known:
            closest = difflib.get_close_matches(variable, known, n=1, cutoff=0.0)[0]
            raise ConfigurationError(
                f"{variable}={os.environ[variable]!r}: there is no such setting. The closest one is "
                f"{closest}; all are: {', '.join(known)}."
            )


def device_name() -> str:
    """Return the name of the device type.

    Raises:
        ConfigurationError: TORCH_LOOM_DEVICE_NAME cannot be a device name.
    """
    return _required(DEVICE_NAME, {})


def device_name_taken(name: str, what: str) -> ConfigurationError:
    """Return the error for a device name when ``what`` exists already."""
    return _complaint(DEVICE_NAME, name, "environment", f"{what} exists already")


def resolve() -> Settings:
    """Return the checked values of all settings.

    Raises:
        ConfigurationError: a value is bad, values contradict one another, or an environment variable begins
            with ``TORCH_LOOM_`` and is no setting.
    """
    return _resolve(_overrides)


def _resolve(overrides: Mapping[str, str]) -> Settings:
    _reject_unknown_variables()
    devices = _required(DEVICES, overrides)
    visible = _value(VISIBLE_DEVICES, overrides)
    for index in visible or ():
        if index >= devices:
            text, source = _raw_value(VISIBLE_DEVICES, overrides)
            highest = f", the highest index is {devices - 1}" if devices else ""
            reason = f"no device {index}: the number of devices is {devices}{highest}"
            raise _complaint(VISIBLE_DEVICES, text, source, reason)
    return Settings(
        device_name=_required(DEVICE_NAME, overrides),
        devices=devices,
        memory_bytes=_required(MEMORY, overrides),
        visible_devices=visible,
        driver=_required(DRIVER, overrides),
    )


def _as_text(setting: Setting[object], value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    if setting is VISIBLE_DEVICES and isinstance(value, Iterable):
        items: list[object] = list(value)
        if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            return ",".join(str(item) for item in items)
    raise _complaint(setting, value, "configure", f"{type(value).__name__} is the wrong type")


def configure(
    *,
    devices: int | None = None,
    memory: int | str | None = None,
    visible_devices: str | Iterable[int] | None = None,
    driver: str | None = None,
) -> None:
    """Set what the environment variables set, from a program, before the devices are first used.

    What is None stays as it is. Nothing changes if any value is bad.

    Args:
        devices: how many devices the machine has, 0 to 64.
        memory: capacity of each device, in bytes or as a size such as ``"16GiB"``.
        visible_devices: which devices the program sees, in this order: indices, or text such as ``"1,0"``.
        driver: ``"virtual"`` or ``"null"``.

    Raises:
        AlreadyInitializedError: the devices have been used.
        ConfigurationError: a value is bad, or contradicts the other settings.
    """
    given = {"devices": devices, "memory": memory, "visible_devices": visible_devices, "driver": driver}
    given = {name: value for name, value in given.items() if value is not None}
    if _frozen:
        call = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise AlreadyInitializedError(
            f"configure({call}): the devices have already been used; call it before the first use of a device"
        )
    by_name = {setting.name: setting for setting in SETTINGS}
    candidate = {**_overrides, **{name: _as_text(by_name[name], value) for name, value in given.items()}}
    _resolve(candidate)
    _overrides.update(candidate)


def freeze() -> None:
    """Refuse :func:`configure` from now on: the devices are in use."""
    global _frozen
    _frozen = True
