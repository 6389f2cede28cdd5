"""Every setting of torch-loom, and the only place that reads environment variables.

A setting is declared once, in :mod:`torch_loom.config.settings`. Its value is that of :func:`configure`,
else that of its environment variable, else its default. Values are read when the devices are first used, not
at import; only the device name is needed at import.
"""

from __future__ import annotations

import difflib
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import TypeVar

from torch_loom.config import rbln
from torch_loom.config.boards import chips_of_board
from torch_loom.config.keywords import names_near_keywords
from torch_loom.config.parsers import NO_CUDA_VERSION, parse_size
from torch_loom.config.resolution import resolved
from torch_loom.config.settings import (
    CHECK_KERNELS,
    CHIP,
    COLLECTIVES,
    COMPILE_CACHE,
    CUBLAS_WORKSPACE_CONFIG,
    CUBLASLT_UNIFIED_WORKSPACE,
    CUBLASLT_WORKSPACE_SIZE,
    CUDA_SANITIZER,
    CUDA_VERSION,
    CUDA_VISIBLE_DEVICES,
    DEVICE_NAME,
    DEVICES,
    HOST_ISSUE,
    INDUCTOR,
    KERNEL_CACHE,
    KERNEL_REPORT,
    MEMORY,
    NVML,
    RBLN_DEVICES,
    RBLN_DUMMY_DEVICE,
    RBLN_VISIBLE_DEVICES,
    SANITIZER,
    SETTINGS,
    TOPOLOGY,
    VISIBLE_DEVICES,
    Setting,
)
from torch_loom.config.sources import (
    CUDA_NAME,
    ENV_PREFIX,
    Source,
    choose_cuda,
    complaint,
    cxx,
    describe_with,
    export,
    exported,
    interprets_triton,
    machine_texts,
    num_launched_ranks,
    put_first,
    raw_text,
    required,
    value_of,
)
from torch_loom.config.values import Settings, device_uuid
from torch_loom.errors import AlreadyInitializedError, ConfigurationError

__all__ = [
    "CUDA_NAME",
    "CUDA_VISIBLE_DEVICES",
    "DEVICES",
    "ENV_PREFIX",
    "NVML",
    "RBLN_DEVICES",
    "RBLN_VISIBLE_DEVICES",
    "SETTINGS",
    "VISIBLE_DEVICES",
    "Setting",
    "Settings",
    "checks_collectives",
    "checks_kernels",
    "choose_cuda",
    "compile_cache",
    "configure",
    "cuda_version",
    "cxx",
    "describe",
    "device_name",
    "device_uuid",
    "export",
    "exported",
    "interprets_triton",
    "is_blas_deterministic",
    "is_configured",
    "is_device_named",
    "is_rbln_dummy",
    "kernel_cache",
    "kernel_cache_refused",
    "machine_texts",
    "num_launched_ranks",
    "parse_size",
    "put_first",
    "raw_value",
    "resolve",
    "topology",
    "value",
]

# Variables of NCCL's watchdog. Not TORCH_NCCL_ASYNC_ERROR_HANDLING, which torchrun sets.
_NCCL_WATCHDOG = (
    "TORCH_NCCL_BLOCKING_WAIT",
    "TORCH_NCCL_DESYNC_DEBUG",
    "TORCH_NCCL_DUMP_ON_TIMEOUT",
    "TORCH_NCCL_ENABLE_MONITORING",
    "TORCH_NCCL_HEARTBEAT_TIMEOUT_SEC",
    "TORCH_NCCL_TRACE_BUFFER_SIZE",
    "TORCH_FR_BUFFER_SIZE",
)

T = TypeVar("T")

_overrides: dict[str, str] = {}
_frozen = False


def raw_value(setting: Setting[T]) -> tuple[str | None, Source]:
    """Return the unchecked text of a setting and where it comes from."""
    return raw_text(setting, _overrides)


def describe(setting: Setting[T]) -> str:
    """Return what sets a setting, and to what, as in ``TORCH_LOOM_DEVICES='2'``."""
    return describe_with(setting, _overrides)


def value(setting: Setting[T]) -> T:
    """Return what the environment says of a setting, else its default.

    Raises:
        ConfigurationError: its variable has a bad value.
    """
    return required(setting, {})


def device_name() -> str:
    """Return the name of the device type.

    Raises:
        ConfigurationError: TORCH_LOOM_DEVICE_NAME cannot be a device name.
    """
    return required(DEVICE_NAME, {})


def is_device_named() -> bool:
    """Return whether the environment names the device type."""
    return raw_value(DEVICE_NAME)[1] != "default"


def is_rbln_dummy() -> bool:
    """Return whether the devices are stand-ins that execute nothing: RBLN_DUMMY_DEVICE, under the name rbln.

    Raises:
        ConfigurationError: it has a bad value.
    """
    return device_name() == rbln.NAME and required(RBLN_DUMMY_DEVICE, {})


def checks_collectives() -> bool:
    """Return whether ranks compare their collectives: TORCH_LOOM_COLLECTIVES.

    Raises:
        ConfigurationError: it has a bad value.
    """
    mode = value_of(COLLECTIVES, {})
    if mode is None and device_name() == CUDA_NAME:
        return not any(name in os.environ for name in _NCCL_WATCHDOG)
    return mode != "nccl"


def topology() -> str | None:
    """Return the name or path of the cluster's description; None if TORCH_LOOM_TOPOLOGY is not set."""
    return value_of(TOPOLOGY, {})


def host_issue_us() -> float | None:
    """Return what the host takes to issue a command; None if TORCH_LOOM_HOST_ISSUE is not set."""
    return value_of(HOST_ISSUE, {})


def is_blas_deterministic() -> bool:
    """Return whether CUBLAS_WORKSPACE_CONFIG makes CUDA's matrix products reproducible."""
    return required(CUBLAS_WORKSPACE_CONFIG, {}) in (":4096:8", ":16:8")


_MOST_BYTES = 2**63 - 1  # of C++


def blas_workspaces() -> tuple[int | None, int | None, bool, str]:
    """Return what the environment says of the memory that libraries of matrix products work in.

    Returns:
        Bytes for products, bytes for products with a bias (None: nothing is said), whether the latter share
        the memory of the former, and the name of the variable that says no size, or an empty text.
    """
    text = required(CUBLAS_WORKSPACE_CONFIG, {})
    pairs = re.findall(r":([0-9]+):([0-9]+)", text)
    bytes = min(sum(int(kib) * 1024 * int(count) for kib, count in pairs), _MOST_BYTES) if pairs else None
    linear = re.match(r"\s*([0-9]+)", required(CUBLASLT_WORKSPACE_SIZE, {}))
    return (
        bytes,
        min(int(linear[1]) * 1024, _MOST_BYTES) if linear else None,
        required(CUBLASLT_UNIFIED_WORKSPACE, {}),
        CUBLAS_WORKSPACE_CONFIG.env if text and not pairs else "",
    )


def checks_kernels() -> bool:
    """Return whether CUDA C++ is compiled with a check of each access."""
    return required(CHECK_KERNELS, {}) or watches_kernels()


def watches_kernels() -> bool:
    """Return whether kernels are compiled so that races between their programs or threads are found."""
    return required(SANITIZER, {}) or value_of(CUDA_SANITIZER, {}) is not None


def generates_triton() -> bool:
    """Return whether Inductor generates Triton's kernels for the devices, as it does for a GPU."""
    return device_name() == CUDA_NAME and required(INDUCTOR, {}) == "triton"


def kernel_report() -> Path | None:
    """Return the folder where processes write which kernels they launched; None: nowhere."""
    folder = value_of(KERNEL_REPORT, {})
    return None if folder is None else Path(folder)


def compile_cache() -> Path | None:
    """Return the folder of compiled models, which may not be there; None: none are kept.

    Raises:
        ConfigurationError: TORCH_LOOM_COMPILE_CACHE is no path.
    """
    folder = value_of(COMPILE_CACHE, {})
    return None if folder is None else Path(folder)


def cuda_version(default: str) -> str | None:
    """Return the version of CUDA that ``torch.version.cuda`` says under CUDA's name; None for none.

    Args:
        default: what to return where TORCH_LOOM_CUDA_VERSION is not set.

    Raises:
        ConfigurationError: TORCH_LOOM_CUDA_VERSION is no version.
    """
    version = value_of(CUDA_VERSION, {})
    return None if version == NO_CUDA_VERSION else version or default


def kernel_cache() -> Path:
    """Return the folder of compiled kernels, made if it was not there.

    Raises:
        ConfigurationError: it cannot be made or written, or others own or may write it: code is loaded from
            it.
    """
    folder = Path(required(KERNEL_CACHE, {}))
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
    text, source = raw_text(KERNEL_CACHE, {})
    return complaint(KERNEL_CACHE, text, source, why)


def device_name_taken(name: str, what: str) -> ConfigurationError:
    """Return the error for a device name when ``what`` exists already."""
    return complaint(DEVICE_NAME, name, "environment", f"{what} exists already")


def resolve() -> Settings:
    """Return the checked values of all settings.

    Raises:
        ConfigurationError: a value is bad, values contradict one another, or an environment variable begins
            with ``TORCH_LOOM_`` and is no setting.
    """
    return resolved(_overrides)


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
    raise complaint(setting, value, "configure", f"{type(value).__name__} is the wrong type")


def _as_list(setting: Setting[object], values: list[object]) -> str:
    parts = [_as_text(setting, value) for value in values]
    if not parts or any("," in part for part in parts):
        reason = "a list of at least one, none of them with a comma in it, is needed"
        raise complaint(setting, values, "configure", reason)
    return ",".join(parts)


@names_near_keywords
def configure(
    *,
    devices: int | None = None,
    chip: str | os.PathLike[str] | None = None,
    chips: Iterable[str | os.PathLike[str]] | None = None,
    memory: int | str | Iterable[int | str] | None = None,
    host_memory: int | str | None = None,
    memory_policy: str | None = None,
    visible_devices: str | Iterable[int] | None = None,
    driver: str | None = None,
    launch: str | None = None,
    asserts: str | None = None,
    chaos_seed: int | None = None,
    protect: bool | None = None,
    clock: str | None = None,
    sanitizer: bool | None = None,
    fallback: str | None = None,
    log_level: str | None = None,
) -> None:
    """Set what the environment variables set, from a program, before the devices are first used.

    What is None stays as it is. Nothing changes if any value is bad. A chip's name is checked at once; its
    description is read, and its errors are raised, when the devices are first used.

    Args:
        devices: how many devices the machine has, 0 to 64.
        chip: ``"loom1"``, ``"atom"`` or ``"h200"``, or the path of a chip description.
        chips: the same for each device; there are as many devices unless ``devices`` says something else,
            which is refused.
        memory: capacity of each device, in bytes or as a size such as ``"16GiB"``; or a list, one for each.
        host_memory: the most host memory that the process may use, device memory included; as ``"8GiB"``.
        memory_policy: ``"eager"`` takes device memory when a tensor is made, ``"lazy"`` at its first use.
        visible_devices: which devices the program sees, in this order: indices, or text such as ``"1,0"``.
        driver: ``"virtual"``, ``"null"``, or the path of a library that has a driver.
        launch: ``"auto"``, ``"blocking"`` or ``"chaos"``.
        asserts: ``"immediate"`` raises at the op that meets a value which it cannot take, ``"device"`` where
            the host waits, as on a GPU.
        chaos_seed: the seed of the order under ``"chaos"``, 0 to 2⁶⁴ − 1.
        protect: whether host code that touches device memory faults.
        clock: ``"simulated"`` or ``"wall"``.
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
    chips_given = resolved(candidate).chips
    if CHIP.name in given:
        _check_chip_names(chips_given, given[CHIP.name])
    _overrides.update(candidate)


def is_configured() -> bool:
    """Return whether :func:`configure` says anything that the environment does not."""
    return bool(_overrides)


def _check_chip_names(chips: Iterable[str], given: object) -> None:
    # By the names of the files, since nothing that reads them may be imported here.
    shipped = sorted(path.stem for path in Path(__file__).parents[1].joinpath("chips").glob("*.toml"))
    for name in chips:
        if name in shipped or name.endswith(".toml") or os.path.basename(name) != name:
            continue
        near = difflib.get_close_matches(name, shipped, 3, 0.5)
        hint = f"do you mean {' or '.join(near)}?" if near else f"shipped are {', '.join(shipped)}"
        hint = chips_of_board(name) or hint
        raise complaint(CHIP, given, "configure", f"there is no chip {name!r}; {hint}")


def _list_of_chips(value: object) -> object:
    # Text would be taken for a list of letters.
    if isinstance(value, (str, bytes, os.PathLike)) or not isinstance(value, Iterable):
        raise complaint(CHIP, value, "configure", "chips is a list, one for each device; chip is for all")
    return list(value)


def freeze() -> None:
    """Refuse :func:`configure` from now on: the devices are in use."""
    global _frozen
    _frozen = True
