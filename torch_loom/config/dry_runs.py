"""The arguments of ``torch.loom.dry_run``, checked by the rules of the settings of the same names."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NoReturn, TypeVar

from torch_loom.config.parsers import MAX_DEVICES, parse_chip, parse_memory
from torch_loom.config.settings import CHIP, MEMORY, Setting
from torch_loom.errors import ConfigurationError

T = TypeVar("T")


@dataclass(frozen=True)
class Request:
    """The devices that a dry run is to have.

    Attributes:
        num_devices: how many; None for as many as the program has.
        chips: the name or path of each device's chip; None for the program's.
        memories: the capacity of each in bytes; None for its chip's.
    """

    num_devices: int | None
    chips: tuple[str, ...] | None
    memories: tuple[int, ...] | None


def request(
    chip: str | os.PathLike[str] | Iterable[str | os.PathLike[str]] | None,
    devices: int | None,
    memory: int | str | Iterable[int | str] | None,
) -> Request:
    """Return what the arguments ask for.

    Raises:
        ConfigurationError: a value is bad, or they contradict one another.
    """
    if devices is not None and (
        not isinstance(devices, int) or isinstance(devices, bool) or not 1 <= devices <= MAX_DEVICES
    ):
        _refuse("devices", devices, "not a number of devices", f"1 to {MAX_DEVICES}")
    chips = None if chip is None else _each(CHIP, chip, _chip)
    memories = None if memory is None else _each(MEMORY, memory, _memory)
    count = devices
    for setting, values, given in ((CHIP, chips, chip), (MEMORY, memories, memory)):
        if values is None or len(values) == 1:
            continue
        if count is not None and len(values) != count:
            _refuse(setting.name, given, f"{len(values)} in the list for {count} devices", setting.allowed)
        count = len(values)
    return Request(count, _for_all(chips, count), _for_all(memories, count))


def _for_all(values: tuple[T, ...] | None, count: int | None) -> tuple[T, ...] | None:
    return values * count if values is not None and len(values) == 1 and count is not None else values


def _memory(value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, (int, str)):
        raise TypeError
    return parse_memory(str(value))


def _chip(value: object) -> str:
    if not isinstance(value, (str, os.PathLike)):
        raise TypeError
    return parse_chip(os.fspath(value))


def _each(setting: Setting[tuple[T, ...]], value: object, parse: Callable[[object], T]) -> tuple[T, ...]:
    is_list = isinstance(value, Iterable) and not isinstance(value, (str, bytes))
    values = list(value) if is_list else [value]  # type: ignore[call-overload]
    if not 1 <= len(values) <= MAX_DEVICES:
        _refuse(setting.name, value, f"a list of {len(values)}", setting.allowed)
    try:
        return tuple(parse(each) for each in values)
    except TypeError:
        _refuse(setting.name, value, "of the wrong type", setting.allowed)
    except ValueError as error:
        _refuse(setting.name, value, str(error), setting.allowed)


def _refuse(name: str, value: object, reason: str, allowed: str) -> NoReturn:
    raise ConfigurationError(f"dry_run({name}={value!r}): {reason}. Allowed: {allowed}.")
