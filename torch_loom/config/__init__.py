"""Every setting of torch-loom, and the only place that reads environment variables.

A setting is declared once, in :mod:`torch_loom.config.settings`. Its value is that of :func:`configure`,
else that of its environment variable, else its default. Values are read when the devices are first used, not
at import; only the device name is needed at import.
"""

from __future__ import annotations

import difflib
import itertools
import os
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, TypeVar

from torch_loom.config import rbln
from torch_loom.config.settings import (
    CHAOS_SEED,
    CHIP,
    CLOCK,
    COMPILER,
    CUDA_LAUNCH_BLOCKING,
    CUDA_SANITIZER,
    CUDA_VERSION,
    CUDA_VISIBLE_DEVICES,
    DEVICE_NAME,
    DEVICES,
    DRIVER,
    FALLBACK,
    KERNEL_CACHE,
    LAUNCH,
    LOG_LEVEL,
    MACHINE,
    MEMORY,
    MEMORY_POLICY,
    PROTECT,
    RBLN_DEVICE_MAP,
    RBLN_DEVICES,
    RBLN_DISABLE_FALLBACK,
    RBLN_EAGER_MALLOC,
    RBLN_LOG_LEVEL,
    RBLN_NPUS_PER_DEVICE,
    SANITIZER,
    SETTINGS,
    VISIBLE_DEVICES,
    Setting,
    parse_size,
)
from torch_loom.errors import AlreadyInitializedError, ConfigurationError

__all__ = [
    "CUDA_NAME",
    "CUDA_VISIBLE_DEVICES",
    "DEVICES",
    "ENV_PREFIX",
    "RBLN_DEVICES",
    "SETTINGS",
    "VISIBLE_DEVICES",
    "Setting",
    "Settings",
    "choose_cuda",
    "compiler",
    "configure",
    "cuda_version",
    "describe",
    "device_name",
    "export",
    "kernel_cache",
    "kernel_cache_refused",
    "parse_size",
    "raw_value",
    "resolve",
]

T = TypeVar("T")
U = TypeVar("U")
Source = Literal["configure", "environment", "default"]

ENV_PREFIX = "TORCH_LOOM_"
# The name under which the devices are CUDA's.
CUDA_NAME = "cuda"
# What the devices are by default under names that belong to a vendor's.
_CHIPS_OF_NAMES = {rbln.NAME: rbln.CHIP, CUDA_NAME: "h200"}


@dataclass(frozen=True)
class Settings:
    """The values of all settings, checked against one another.

    Attributes:
        device_name: the device type, ``"loom"`` by default.
        devices: how many physical devices, NPUs, there are.
        chips: of each NPU, by its physical index, the name of a shipped chip or the path of a description;
            one for all where there are no NPUs.
        memories: the capacity of each NPU in bytes, likewise; None for its chip's.
        memory_policy: ``"eager"`` or ``"lazy"``; None for the chip's.
        visible_devices: the physical indices the program sees; None for all.
        driver: ``"virtual"``, ``"null"``, or the path of a library that has a driver.
        launch: ``"auto"``, ``"blocking"`` or ``"chaos"``.
        chaos_seed: the seed of the order under ``"chaos"``; None for another one in each process.
        protect: whether host access to device memory faults.
        clock: ``"wall"``.
        sanitizer: whether races between streams are reported.
        machine: whose devices they are, for telemetry; ``"none"`` for this process's alone.
        device_groups: which of the visible NPUs, counted from 0, make each device; None if each is a device.
        fallback: ``"allow"``, ``"warn"`` or ``"error"``.
        log_level: ``"DEBUG"``, ``"INFO"``, ``"WARNING"`` or ``"ERROR"``; None leaves it to Python's logging.
    """

    device_name: str
    devices: int
    chips: tuple[str, ...]
    memories: tuple[int | None, ...]
    memory_policy: str | None
    visible_devices: tuple[int, ...] | None
    driver: str
    launch: str
    chaos_seed: int | None
    protect: bool
    clock: str
    sanitizer: bool
    machine: str
    fallback: str
    log_level: str | None
    device_groups: rbln.Groups | None = None

    @property
    def visible_npus(self) -> tuple[int, ...]:
        """The physical index of each NPU that the program may use."""
        return tuple(range(self.devices)) if self.visible_devices is None else self.visible_devices

    @property
    def groups(self) -> rbln.Groups:
        """Which of the visible NPUs, counted from 0, make each device."""
        if self.device_groups is not None:
            return self.device_groups
        return tuple((npu,) for npu in range(len(self.visible_npus)))

    @property
    def physical_devices(self) -> tuple[int, ...]:
        """The physical index of each device, that of its first NPU, by the index that the program uses."""
        return tuple(self.visible_npus[group[0]] for group in self.groups)

    @property
    def chip(self) -> str:
        """The chip of the program's first device, or the one that it would be."""
        return self.chips[self.physical_devices[0]] if self.physical_devices else self.chips[0]

    @property
    def memory_bytes(self) -> int | None:
        """The capacity of the first NPU; None for its chip's."""
        return self.memories[self.visible_npus[0]] if self.visible_npus else self.memories[0]

    def npus_of(self, device: int) -> tuple[int, ...]:
        """The physical indices of the NPUs that make a device; they are of one chip."""
        return tuple(self.visible_npus[npu] for npu in self.groups[device])


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
    if setting.name == CHIP.name and os.environ.get(DEVICE_NAME.env) in _CHIPS_OF_NAMES:
        return _CHIPS_OF_NAMES[os.environ[DEVICE_NAME.env]], "default"
    return setting.default, "default"


def _is_open(setting: Setting[T], overrides: Mapping[str, str]) -> bool:
    # Whether another variable may say it.
    return _raw_value(setting, overrides)[1] == "default"


def describe(setting: Setting[T]) -> str:
    """Return what sets a setting, and to what, as in ``TORCH_LOOM_DEVICES='2'``."""
    return _describe_with(setting, _overrides)


def _describe_with(setting: Setting[T], overrides: Mapping[str, str]) -> str:
    return _describe(setting, *_raw_value(setting, overrides))


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


def choose_cuda() -> None:
    """Set TORCH_LOOM_DEVICE_NAME to cuda, for this process and those that it starts.

    Raises:
        AlreadyInitializedError: torch has been imported under another name of the device: the name is read
            then.
    """
    if "torch" in sys.modules and os.environ.get(DEVICE_NAME.env) != CUDA_NAME:
        raise AlreadyInitializedError(
            "import torch_loom.as_cuda must come before `import torch`: the device has its name from then "
            "on. Make it the first line of the program or of its conftest.py, or start the program with "
            f"`loom run` or {DEVICE_NAME.env}={CUDA_NAME}."
        )
    os.environ[DEVICE_NAME.env] = CUDA_NAME


def export(values: Mapping[str, str | None]) -> None:
    """Set environment variables, for a program that takes the place of this one.

    Args:
        values: unchecked texts by the names of settings; None for those that stay as they are.
    """
    for setting in SETTINGS:
        value = values.get(setting.name)
        if value is not None:
            os.environ[setting.env] = value


def compiler() -> str:
    """Return the command that compiles C++."""
    return _required(COMPILER, {})


def cuda_version() -> str | None:
    """Return the version of CUDA that ``torch.version.cuda`` says under CUDA's name; None for none.

    Raises:
        ConfigurationError: TORCH_LOOM_CUDA_VERSION is no version.
    """
    return _value(CUDA_VERSION, {})


def kernel_cache() -> Path:
    """Return the folder of compiled kernels, made if it was not there.

    Raises:
        ConfigurationError: it cannot be made or written, or others own or may write it: code is loaded from
            it.
    """
    folder = Path(_required(KERNEL_CACHE, {}))
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    except OSError as error:
        raise kernel_cache_refused(str(error)) from error
    status = folder.stat()
    if status.st_uid != os.getuid() or not os.access(folder, os.W_OK | os.X_OK):
        raise kernel_cache_refused(f"{folder} is not this user's to write")
    if status.st_mode & 0o022:
        raise kernel_cache_refused(
            f"others may write {folder} (mode {status.st_mode & 0o7777:04o}), and code is loaded from it: "
            "`chmod go-w` it"
        )
    return folder


def kernel_cache_refused(why: str) -> ConfigurationError:
    """Return the error for a folder of compiled kernels, or a file in it, that cannot be used."""
    text, source = _raw_value(KERNEL_CACHE, {})
    return _complaint(KERNEL_CACHE, text, source, why)


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
    chips, memories = _required(CHIP, overrides), _value(MEMORY, overrides) or (None,)
    devices = _num_devices(len(chips), len(memories), overrides)
    name = _required(DEVICE_NAME, overrides)
    visible = _visible(VISIBLE_DEVICES, devices, overrides)
    policy = _value(MEMORY_POLICY, overrides)
    fallback = _required(FALLBACK, overrides)
    log_level = _value(LOG_LEVEL, overrides)
    launch, sanitizer = _required(LAUNCH, overrides), _required(SANITIZER, overrides)
    groups = None
    if name == CUDA_NAME:
        indices = _value(CUDA_VISIBLE_DEVICES, overrides)
        if visible is None and indices is not None:
            visible = tuple(itertools.takewhile(lambda index: index < devices, indices))
        if _is_open(LAUNCH, overrides) and _required(CUDA_LAUNCH_BLOCKING, overrides):
            launch = "blocking"
        if _is_open(SANITIZER, overrides):
            sanitizer = _required(CUDA_SANITIZER, overrides)
    if name == rbln.NAME:
        if visible is None:
            visible = _visible(RBLN_DEVICES, devices, overrides)
        if policy is None and _required(RBLN_EAGER_MALLOC, overrides):
            policy = "eager"
        groups = _npu_groups(devices if visible is None else len(visible), overrides)
        disabled = _value(RBLN_DISABLE_FALLBACK, overrides) or ()
        if _is_open(FALLBACK, overrides) and {"unsupported_op", "all"} & set(disabled):
            fallback = "error"
        log_level = log_level or _value(RBLN_LOG_LEVEL, overrides)
        _check_groups(groups, chips, visible, overrides)
    return Settings(
        device_name=name,
        devices=devices,
        chips=chips * max(devices, 1) if len(chips) == 1 else chips,
        memories=memories * max(devices, 1) if len(memories) == 1 else memories,
        memory_policy=policy,
        visible_devices=visible,
        driver=_required(DRIVER, overrides),
        launch=launch,
        chaos_seed=_value(CHAOS_SEED, overrides),
        protect=_required(PROTECT, overrides),
        clock=_required(CLOCK, overrides),
        sanitizer=sanitizer,
        machine=_required(MACHINE, overrides),
        device_groups=groups,
        fallback=fallback,
        log_level=log_level,
    )


def _num_devices(num_chips: int, num_memories: int, overrides: Mapping[str, str]) -> int:
    """Return how many devices there are; a list of chips or memories that is not for so many is refused."""
    devices, said_by = _required(DEVICES, overrides), _describe_with(DEVICES, overrides)
    is_open = _raw_value(DEVICES, overrides)[1] == "default"
    counts: tuple[tuple[Setting[Any], int], ...] = ((CHIP, num_chips), (MEMORY, num_memories))
    for setting, count in counts:
        if count == 1:
            continue
        if is_open:
            devices, said_by, is_open = count, _describe_with(setting, overrides), False
        elif count != devices:
            text, source = _raw_value(setting, overrides)
            reason = (
                f"{count} in the list, but {said_by} says {devices}: give one for each device, or one for all"
            )
            raise _complaint(setting, text, source, reason)
    return devices


def _check_groups(
    groups: rbln.Groups | None,
    chips: tuple[str, ...],
    visible: tuple[int, ...] | None,
    overrides: Mapping[str, str],
) -> None:
    for group in groups or ():
        own = [chips[(npu if visible is None else visible[npu]) % len(chips)] for npu in group]
        if len(set(own)) > 1:
            text, source = _raw_value(CHIP, overrides)
            reason = f"the NPUs {list(group)} make one device, but are of different chips ({', '.join(own)})"
            raise _complaint(CHIP, text, source, reason)


def _visible(
    setting: Setting[tuple[int, ...]], devices: int, overrides: Mapping[str, str]
) -> tuple[int, ...] | None:
    visible = _value(setting, overrides)
    for index in visible or ():
        if index >= devices:
            text, source = _raw_value(setting, overrides)
            highest = f", the highest index is {devices - 1}" if devices else ""
            reason = f"no device {index}: the number of devices is {devices}{highest}"
            raise _complaint(setting, text, source, reason)
    return visible


def _npu_groups(pool: int, overrides: Mapping[str, str]) -> rbln.Groups | None:
    device_map = _value(RBLN_DEVICE_MAP, overrides)
    if device_map is not None:
        return _checked(RBLN_DEVICE_MAP, lambda: rbln.select(device_map, pool))
    size = _required(RBLN_NPUS_PER_DEVICE, overrides)
    return None if size == 1 else _checked(RBLN_NPUS_PER_DEVICE, lambda: rbln.divide(pool, size))


def _checked(setting: Setting[T], body: Callable[[], U]) -> U:
    try:
        return body()
    except ValueError as error:
        raise _complaint(setting, *raw_value(setting), str(error)) from None


def _as_text(setting: Setting[object], value: object) -> str:
    if isinstance(value, str):
        return value
    if isinstance(value, bool):
        if setting.type_name == "flag":
            return str(int(value))
    elif isinstance(value, int):
        return str(value)
    if setting is CHIP and isinstance(value, os.PathLike):
        return os.fsdecode(value)
    if setting in (CHIP, MEMORY) and isinstance(value, Iterable) and not isinstance(value, bytes):
        return _as_list(setting, list(value))
    if setting is VISIBLE_DEVICES and isinstance(value, Iterable):
        items: list[object] = list(value)
        if all(isinstance(item, int) and not isinstance(item, bool) for item in items):
            return ",".join(str(item) for item in items)
    raise _complaint(setting, value, "configure", f"{type(value).__name__} is the wrong type")


def _as_list(setting: Setting[object], values: list[object]) -> str:
    parts = [_as_text(setting, value) for value in values]
    if not parts or any("," in part for part in parts):
        reason = "a list of at least one, none of them with a comma in it, is needed"
        raise _complaint(setting, values, "configure", reason)
    return ",".join(parts)


def configure(
    *,
    devices: int | None = None,
    chip: str | os.PathLike[str] | None = None,
    chips: Iterable[str | os.PathLike[str]] | None = None,
    memory: int | str | Iterable[int | str] | None = None,
    memory_policy: str | None = None,
    visible_devices: str | Iterable[int] | None = None,
    driver: str | None = None,
    launch: str | None = None,
    chaos_seed: int | None = None,
    protect: bool | None = None,
    clock: str | None = None,
    sanitizer: bool | None = None,
    fallback: str | None = None,
    log_level: str | None = None,
) -> None:
    """Set what the environment variables set, from a program, before the devices are first used.

    What is None stays as it is. Nothing changes if any value is bad; a chip's description is read, and its
    errors are raised, when the devices are first used.

    Args:
        devices: how many devices the machine has, 0 to 64.
        chip: ``"loom1"``, ``"atom"`` or ``"h200"``, or the path of a chip description.
        chips: the same for each device; there are as many devices unless ``devices`` says something else,
            which is refused.
        memory: capacity of each device, in bytes or as a size such as ``"16GiB"``; or a list, one for each.
        memory_policy: ``"eager"`` takes device memory when a tensor is made, ``"lazy"`` at its first use.
        visible_devices: which devices the program sees, in this order: indices, or text such as ``"1,0"``.
        driver: ``"virtual"``, ``"null"``, or the path of a library that has a driver.
        launch: ``"auto"``, ``"blocking"`` or ``"chaos"``.
        chaos_seed: the seed of the order under ``"chaos"``, 0 to 2⁶⁴ − 1.
        protect: whether host code that touches device memory faults.
        clock: ``"wall"``.
        sanitizer: whether races between streams are reported.
        fallback: ``"allow"`` runs and logs what the chip does not do itself, ``"warn"`` warns of it,
            ``"error"`` refuses it.
        log_level: ``"DEBUG"``, ``"INFO"``, ``"WARNING"`` or ``"ERROR"``: what is logged to stderr.

    Raises:
        AlreadyInitializedError: the devices have been used.
        ConfigurationError: a value is bad, or contradicts the other settings.
    """
    given: dict[str, object] = {name: value for name, value in locals().items() if value is not None}
    if _frozen:
        call = ", ".join(f"{name}={value!r}" for name, value in given.items())
        raise AlreadyInitializedError(
            f"configure({call}): the devices have already been used; call it before the first use of a device"
        )
    if "chips" in given:
        if "chip" in given:
            raise ConfigurationError(f"configure(chip={chip!r}, chips={chips!r}): give one of the two")
        given["chip"] = _list_of_chips(given.pop("chips"))
    by_name = {setting.name: setting for setting in SETTINGS}
    candidate = {**_overrides, **{name: _as_text(by_name[name], value) for name, value in given.items()}}
    _resolve(candidate)
    _overrides.update(candidate)


def _list_of_chips(value: object) -> object:
    # Text would be taken for a list of letters.
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise _complaint(CHIP, value, "configure", "chips is a list, one for each device; chip is for all")
    return list(value)


def freeze() -> None:
    """Refuse :func:`configure` from now on: the devices are in use."""
    global _frozen
    _frozen = True
