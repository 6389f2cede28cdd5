"""The values of all settings together, where one decides another's default or contradicts it."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Mapping
from typing import Any, TypeVar

from torch_loom.config import rbln
from torch_loom.config.settings import (
    ASSERTS,
    CHAOS_SEED,
    CHIP,
    CLOCK,
    CUDA_LAUNCH_BLOCKING,
    CUDA_SANITIZER,
    CUDA_VISIBLE_DEVICES,
    DEVICE_NAME,
    DEVICES,
    DRIVER,
    FALLBACK,
    HOST_MEMORY,
    LAUNCH,
    LOG_LEVEL,
    MACHINE,
    MEMORY,
    MEMORY_POLICY,
    PROTECT,
    RBLN_DEVICE_MAP,
    RBLN_DEVICES,
    RBLN_DISABLE_FALLBACK,
    RBLN_DUMMY_DEVICE,
    RBLN_EAGER_MALLOC,
    RBLN_LOG_LEVEL,
    RBLN_NPUS_PER_DEVICE,
    RBLN_VISIBLE_DEVICES,
    RNG,
    SANITIZER,
    VISIBLE_DEVICES,
    Setting,
)
from torch_loom.config.sources import (
    CUDA_NAME,
    complaint,
    describe_with,
    raw_text,
    reject_unknown_variables,
    required,
    value_of,
)
from torch_loom.config.values import Settings

T = TypeVar("T")
U = TypeVar("U")


def resolved(overrides: Mapping[str, str]) -> Settings:
    """Return the checked values of all settings.

    Args:
        overrides: the text of those that the program gives itself, by the names of the settings.

    Raises:
        ConfigurationError: a value is bad, values contradict one another, or an environment variable begins
            with ``TORCH_LOOM_`` and is no setting.
    """
    reject_unknown_variables()
    chips, memories = required(CHIP, overrides), value_of(MEMORY, overrides) or (None,)
    devices = _num_devices(len(chips), len(memories), overrides)
    name = required(DEVICE_NAME, overrides)
    visible = _visible(VISIBLE_DEVICES, devices, overrides)
    policy = value_of(MEMORY_POLICY, overrides)
    fallback = required(FALLBACK, overrides)
    log_level = value_of(LOG_LEVEL, overrides)
    launch = required(LAUNCH, overrides)
    asserts = value_of(ASSERTS, overrides) or ("device" if name == CUDA_NAME else "immediate")
    groups, is_dummy = None, False
    if name == CUDA_NAME:
        indices = value_of(CUDA_VISIBLE_DEVICES, overrides)
        if visible is None and indices is not None:
            visible = tuple(itertools.takewhile(lambda index: index < devices, indices))
        if _is_open(LAUNCH, overrides) and required(CUDA_LAUNCH_BLOCKING, overrides):
            launch = "blocking"
    if name == rbln.NAME:
        is_dummy = required(RBLN_DUMMY_DEVICE, overrides)
        if policy is None and required(RBLN_EAGER_MALLOC, overrides):
            policy = "eager"
        if is_dummy:
            # No NPU is there to be hidden, and a list of chips or memories is for those that are.
            device_map, size = value_of(RBLN_DEVICE_MAP, overrides), required(RBLN_NPUS_PER_DEVICE, overrides)
            groups, visible = rbln.stand_ins(device_map, size), None
            devices, chips, memories = sum(map(len, groups)), chips[:1], memories[:1]
        else:
            for setting in (RBLN_VISIBLE_DEVICES, RBLN_DEVICES):
                visible = _visible(setting, devices, overrides) if visible is None else visible
            groups = _npu_groups(devices if visible is None else len(visible), overrides)
        disabled = value_of(RBLN_DISABLE_FALLBACK, overrides) or ()
        if _is_open(FALLBACK, overrides) and {"unsupported_op", "all"} & set(disabled):
            fallback = "error"
        log_level = log_level or value_of(RBLN_LOG_LEVEL, overrides)
        _check_groups(groups, chips, visible, overrides)
    return Settings(
        device_name=name,
        devices=devices,
        chips=chips * max(devices, 1) if len(chips) == 1 else chips,
        memories=memories * max(devices, 1) if len(memories) == 1 else memories,
        memory_policy=policy,
        visible_devices=visible,
        driver=required(DRIVER, overrides),
        launch=launch,
        asserts=asserts,
        rng=required(RNG, overrides),
        chaos_seed=value_of(CHAOS_SEED, overrides),
        protect=required(PROTECT, overrides),
        clock=required(CLOCK, overrides),
        sanitizer=required(SANITIZER, overrides) or value_of(CUDA_SANITIZER, overrides) is not None,
        machine=required(MACHINE, overrides),
        device_groups=groups,
        fallback=fallback,
        log_level=log_level,
        host_memory_bytes=value_of(HOST_MEMORY, overrides),
        is_dummy=is_dummy,
    )


def _num_devices(num_chips: int, num_memories: int, overrides: Mapping[str, str]) -> int:
    """Return how many devices there are; a list of chips or memories that is not for so many is refused."""
    devices, said_by = required(DEVICES, overrides), describe_with(DEVICES, overrides)
    is_open = raw_text(DEVICES, overrides)[1] == "default"
    counts: tuple[tuple[Setting[Any], int], ...] = ((CHIP, num_chips), (MEMORY, num_memories))
    for setting, count in counts:
        if count == 1:
            continue
        if is_open:
            devices, said_by, is_open = count, describe_with(setting, overrides), False
        elif count != devices:
            text, source = raw_text(setting, overrides)
            reason = (
                f"{count} in the list, but {said_by} says {devices}: give one for each device, or one for all"
            )
            raise complaint(setting, text, source, reason)
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
            text, source = raw_text(CHIP, overrides)
            reason = f"the NPUs {list(group)} make one device, but are of different chips ({', '.join(own)})"
            raise complaint(CHIP, text, source, reason)


def _visible(
    setting: Setting[tuple[int, ...]], devices: int, overrides: Mapping[str, str]
) -> tuple[int, ...] | None:
    visible = value_of(setting, overrides)
    for index in visible or ():
        if index >= devices:
            text, source = raw_text(setting, overrides)
            highest = f", the highest index is {devices - 1}" if devices else ""
            reason = f"no device {index}: the number of devices is {devices}{highest}"
            raise complaint(setting, text, source, reason)
    return visible


def _npu_groups(pool: int, overrides: Mapping[str, str]) -> rbln.Groups | None:
    device_map = value_of(RBLN_DEVICE_MAP, overrides)
    if device_map is not None:
        return _checked(RBLN_DEVICE_MAP, overrides, lambda: rbln.select(device_map, pool))
    size = required(RBLN_NPUS_PER_DEVICE, overrides)
    return None if size == 1 else _checked(RBLN_NPUS_PER_DEVICE, overrides, lambda: rbln.divide(pool, size))


def _checked(setting: Setting[T], overrides: Mapping[str, str], body: Callable[[], U]) -> U:
    try:
        return body()
    except ValueError as error:
        raise complaint(setting, *raw_text(setting, overrides), str(error)) from None


def _is_open(setting: Setting[T], overrides: Mapping[str, str]) -> bool:
    # Whether another variable may say it.
    return raw_text(setting, overrides)[1] == "default"
