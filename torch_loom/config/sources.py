"""Where a setting's text comes from, and what is said when it is bad.

`overrides` are the texts that :func:`torch_loom.config.configure` was given, by the settings' names.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Literal, TypeVar

from torch_loom.config import rbln
from torch_loom.config.settings import CHIP, DEVICE_NAME, Setting
from torch_loom.errors import ConfigurationError

__all__ = ["CUDA_NAME", "Source", "complaint", "describe_with", "raw_text", "required", "value_of"]

T = TypeVar("T")
Source = Literal["configure", "environment", "default"]

# The name under which the devices are CUDA's.
CUDA_NAME = "cuda"
# What the devices are by default under names that belong to a vendor's.
_CHIPS_OF_NAMES = {rbln.NAME: rbln.CHIP, CUDA_NAME: "h200"}


def raw_text(setting: Setting[T], overrides: Mapping[str, str]) -> tuple[str | None, Source]:
    if setting.name in overrides:
        return overrides[setting.name], "configure"
    if setting.env in os.environ:
        return os.environ[setting.env], "environment"
    if setting.name == CHIP.name and os.environ.get(DEVICE_NAME.env) in _CHIPS_OF_NAMES:
        return _CHIPS_OF_NAMES[os.environ[DEVICE_NAME.env]], "default"
    return setting.default, "default"


def describe_with(setting: Setting[T], overrides: Mapping[str, str]) -> str:
    return _describe(setting, *raw_text(setting, overrides))


def _describe(setting: Setting[T], text: object, source: Source) -> str:
    return f"configure({setting.name}={text!r})" if source == "configure" else f"{setting.env}={text!r}"


def complaint(setting: Setting[T], text: object, source: Source, reason: str) -> ConfigurationError:
    return ConfigurationError(f"{_describe(setting, text, source)}: {reason}. Allowed: {setting.allowed}.")


def value_of(setting: Setting[T], overrides: Mapping[str, str]) -> T | None:
    text, source = raw_text(setting, overrides)
    if text is None:
        return None
    try:
        return setting.parse(text)
    except ValueError as error:
        raise complaint(setting, text, source, str(error)) from None


def required(setting: Setting[T], overrides: Mapping[str, str]) -> T:
    value = value_of(setting, overrides)
    assert value is not None, f"{setting.name} has no default"
    return value
