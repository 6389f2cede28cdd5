"""The only file that reads environment variables: where a setting's text comes from.

Also what is said when it is bad. `overrides` are the texts that ``configure`` was given.
"""

from __future__ import annotations

import difflib
import os
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Literal, TypeVar

from torch_loom.config import rbln
from torch_loom.config.parsers import MAX_DEVICES
from torch_loom.config.settings import (
    CHIP,
    CUDA_VERSION,
    DEVICE_NAME,
    DEVICES,
    MACHINE,
    MEMORY,
    SETTINGS,
    Setting,
)
from torch_loom.errors import AlreadyInitializedError, ConfigurationError

T = TypeVar("T")
Source = Literal["configure", "environment", "default"]

ENV_PREFIX = "TORCH_LOOM_"
# The name under which the devices are CUDA's.
CUDA_NAME = "cuda"


def _devices_of_cuda() -> str:
    # A machine with one GPU, or with one for each process that torchrun has started on it: libraries that see
    # several in one process wrap models in DataParallel, or refuse.
    text = os.environ.get("LOCAL_WORLD_SIZE", "")
    return str(min(max(int(text), 1), MAX_DEVICES)) if text.isdecimal() else "1"


# Defaults under names that belong to a vendor's, by the names of settings.
_DEFAULTS_OF_NAMES: Mapping[str, Mapping[str, Callable[[], str]]] = {
    rbln.NAME: {CHIP.name: lambda: rbln.CHIP},
    CUDA_NAME: {CHIP.name: lambda: "h200", DEVICES.name: _devices_of_cuda},
}


def raw_text(setting: Setting[T], overrides: Mapping[str, str]) -> tuple[str | None, Source]:
    if setting.name in overrides:
        return overrides[setting.name], "configure"
    if setting.env in os.environ:
        return os.environ[setting.env], "environment"
    defaults = _DEFAULTS_OF_NAMES.get(os.environ.get(DEVICE_NAME.env, ""), {})
    return defaults[setting.name]() if setting.name in defaults else setting.default, "default"


def foreign(name: str) -> str | None:
    """Return what a variable says that is no setting of this package: of PyTorch's, or of a launcher."""
    return os.environ.get(name)


def num_launched_ranks() -> int:
    """Return how many processes a launcher such as torchrun says it has started; 1 if none says."""
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() else 1


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


def reject_unknown_variables() -> None:
    known = [setting.env for setting in SETTINGS]
    for variable in sorted(os.environ):
        if variable.startswith(ENV_PREFIX) and variable not in known:
            closest = difflib.get_close_matches(variable, known, n=1, cutoff=0.0)[0]
            raise ConfigurationError(
                f"{variable}={os.environ[variable]!r}: there is no such setting. The closest one is "
                f"{closest}; docs/settings.md lists all {len(known)}."
            )


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
    """Set environment variables, for a program that replaces this process.

    Args:
        values: unchecked texts by the names of settings; None for those that stay as they are.
    """
    for setting in SETTINGS:
        value = values.get(setting.name)
        if value is not None:
            os.environ[setting.env] = value


@contextmanager
def exported(values: Mapping[str, str]) -> Iterator[None]:
    """Set environment variables as :func:`export` for a while, for the whole process.

    Main devices that are first made in it keep what they read.

    Raises:
        KeyError: a name is no setting's.
    """
    by_name = {setting.name: setting.env for setting in SETTINGS}
    names = [by_name[name] for name in values]
    before = {name: os.environ.get(name) for name in names}
    export(values)
    try:
        yield
    finally:
        for name, value in before.items():
            os.environ.pop(name, None)
            if value is not None:
                os.environ[name] = value


def interprets_triton() -> bool:
    """Return whether TRITON_INTERPRET=1 has Triton run its kernels in Python."""
    return os.environ.get("TRITON_INTERPRET") == "1"


def cxx() -> str | None:
    """Return the C++ compiler that CXX names, as for builds of extensions.

    None if it names none, or nvcc, which has C++ compiled by another one.
    """
    named = os.environ.get("CXX", "").split()
    return None if not named or os.path.basename(named[0]) == "nvcc" else os.environ["CXX"]


def machine_texts() -> dict[str, str | None]:
    """Return the variables that say what devices the machine has, unchecked; None: not set."""
    names = [DEVICE_NAME.env, DEVICES.env, CHIP.env, MEMORY.env, MACHINE.env, CUDA_VERSION.env]
    return {name: os.environ.get(name) for name in (*names, "LOCAL_WORLD_SIZE")}


def put_first(variable: str, folder: str) -> None:
    """Put a folder before the others of a search path in the environment."""
    default = os.defpath if variable == "PATH" else ""
    found = os.environ.get(variable, default).split(os.pathsep)
    others = [each for each in found if each not in (folder, "")]
    os.environ[variable] = os.pathsep.join([folder, *others])
