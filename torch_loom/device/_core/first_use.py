"""First use: what happens once, when a device is first needed."""

from __future__ import annotations

import atexit
import copy
import functools
import os
import sys
import threading
import traceback
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from torch_loom import _C, config, late
from torch_loom.config.settings import KERNEL_TIMEOUT
from torch_loom.errors import DeferredCallError, ForkError, NoDeviceError

__all__ = ["init", "is_initialized"]

_lock = threading.RLock()
_initializing = False
_ready = False
_is_poisoning_forks = False
_is_poisoned_child = False
_ChipLoader = Callable[[str, bool], "tuple[_C.Chip, Mapping[str, float]]"]
_load_chip: _ChipLoader | None = None
# Of each device that the program sees, and while a dry run is under way of each of the program's own.
_figures: Sequence[Mapping[str, float]] = ()
_figures_of_program: Sequence[Mapping[str, float]] = ()
_at_first_use: list[Callable[[config.Settings], None]] = []


class _Deferred:
    """Calls made before first use, in order; of the seeds only the last of each kind is kept."""

    def __init__(self) -> None:
        self._calls: dict[object, tuple[Callable[[], None], list[str]]] = {}

    def add(self, callback: Callable[[], None], kind: str | None) -> None:
        key: object = object() if kind is None else kind
        self._calls.pop(key, None)
        self._calls[key] = (callback, traceback.format_stack()[:-2])

    def run(self) -> None:
        calls, self._calls = list(self._calls.values()), {}
        failure: DeferredCallError | None = None
        for callback, stack in calls:
            try:
                callback()
            except Exception as error:
                if failure is None:
                    failure = DeferredCallError(
                        f"A call made before the devices were first used failed: {error}\n\n"
                        f"It was made here:\n{''.join(stack)}"
                    )
                    failure.__cause__ = error
        if failure is not None:
            raise failure


_deferred = _Deferred()


def _is_in_bad_fork() -> bool:
    """Return whether this process was forked after the devices were used, or their driver started."""
    return _is_poisoned_child or _C.is_in_bad_fork()


def _poison_forks() -> None:
    """Let no child that is forked from now on use the devices: their driver has been started."""
    global _is_poisoning_forks
    _is_poisoning_forks = True


def is_initialized() -> bool:
    """Return whether the devices have been used in this process."""
    return _ready and not _C.is_in_bad_fork()


def init() -> None:
    """Initialise the devices now instead of at first use. Does nothing the second time.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
        NoDeviceError: there are no devices.
        ForkError: the process was forked after its parent had used the devices.
    """
    _lazy_init()


def _lazy_init() -> None:
    """Initialise the devices if that has not been done; PyTorch and the extension call this at first use."""
    global _initializing, _ready
    if is_initialized():
        return
    name = config.device_name()
    if _is_in_bad_fork():
        raise ForkError(
            f"Cannot re-initialize {name.upper()} in forked subprocess. To use {name.upper()} with "
            "multiprocessing, you must use the 'spawn' start method"
        )
    with _lock:
        # The lock is reentrant: a deferred call comes back here through the functions that it uses.
        if _ready or _initializing:
            return
        settings = config.resolve()
        if not settings.physical_devices:
            raise NoDeviceError(_no_device_message(settings))
        _initializing = True
        try:
            if not _C.is_initialized():
                with late.without_collections():
                    _initialize_core(settings)
            config.freeze()
            try:
                _deferred.run()
            finally:
                # Last, so that no other thread draws random numbers before the deferred seeds are set.
                _ready = True
        finally:
            _initializing = False


def _initialize_core(settings: config.Settings) -> None:
    global _figures
    devices, _figures = _describe_devices(settings)
    seed = 0
    if settings.launch == "chaos":
        import secrets  # here: it takes longer to import than all of this file

        seed = secrets.randbits(64) if settings.chaos_seed is None else settings.chaos_seed
    _C.initialize(
        devices=devices,
        launch=settings.launch,
        chaos_seed=seed,
        protect=settings.protect,
        refuse_fallbacks=settings.fallback == "error" or settings.is_dummy,
        host_memory_bytes=settings.host_memory_bytes or 0,
        device_asserts=settings.asserts == "device",
    )
    _C.set_random_rule(settings.rng)
    _C.set_kernel_time_limit(config.value(KERNEL_TIMEOUT))
    # Read when a matrix product first asks, as CUDA does: programs set it after they have used a device.
    _C.set_blas_rules(config.blas_workspaces)
    if settings.device_name == config.CUDA_NAME:
        _C.set_blas_determinism(config.is_blas_deterministic)
        sizes = [workspace_sizes(own) if _product_of(own) else (0, 0) for own in _figures]
        if any(bytes for bytes, _ in sizes):
            _C.provide_workspaces(sizes)
    if settings.device_name == config.rbln.NAME:
        _C.leave_memory_policy_open(_settle_memory_policy)
    if settings.launch == "chaos":
        atexit.register(_tell_chaos_seed, seed)
    for callback in _at_first_use:
        callback(settings)


def _settle_memory_policy() -> None:
    # TORCH_RBLN_EAGER_MALLOC is read when the first tensor is made, as the vendor's package reads it.
    if _C.world() != 0:
        return  # a dry run: its devices have their policy, and the program has made no tensor yet
    settings = config.resolve()
    _C.close_memory_policy([_is_lazy(settings, _C.chip(index)) for index in range(_C.device_count())])


def _is_lazy(settings: config.Settings, chip: _C.Chip) -> bool:
    return chip.lazy_memory if settings.memory_policy is None else settings.memory_policy == "lazy"


def at_first_use(callback: Callable[[config.Settings], None]) -> None:
    """Have a file of this layer called with the settings when the devices have been initialised.

    The order is that of the imports. This file is below all others and imports none of them.
    """
    _at_first_use.append(callback)


def begin_order(seed: int) -> None:
    """Begin the order of the launch mode chaos again, as in a process that begins with this seed.

    Before the first use, that begins with it.

    Raises:
        NotSupportedError: the launch mode is another.
    """
    if not is_initialized():
        config.export({"chaos_seed": str(seed)})
        return
    for index in range(_C.device_count()):
        if _C.device_has_context(index):
            _C.synchronize(index)
            _C.empty_cache(index)  # what a missing wait reads is not what an earlier order left in memory
    _C.set_chaos_seed(seed)
    atexit.unregister(_tell_chaos_seed)  # a program that chooses orders knows them


def _tell_chaos_seed(seed: int) -> None:
    # The interpreter sets it for an uncaught exception, and test runners for a failed test.
    if getattr(sys, "last_value", None) is not None:
        print(
            f"torch-loom: launch mode chaos, seed {seed}; TORCH_LOOM_CHAOS_SEED={seed} repeats this order",
            file=sys.stderr,
        )


def set_chip_loader(load: _ChipLoader) -> None:
    """Say how a chip is read, by name or path: this layer knows none itself."""
    global _load_chip
    _load_chip = load


def read_chip(chip: str, executes: bool = True) -> tuple[_C.Chip, Mapping[str, float]]:
    """Return what the core keeps of a chip, and its figures.

    Args:
        chip: its name, or the path of its description.
        executes: False for a stand-in, which makes tensors and computes nothing.

    Raises:
        ChipError: there is no such chip, or its description cannot be used.
    """
    assert _load_chip is not None, "torch_loom._register sets it"
    return _load_chip(chip, executes)


def _describe_devices(
    settings: config.Settings,
) -> tuple[list[_C.DeviceConfig], Sequence[Mapping[str, float]]]:
    """Return what the program's devices are made from, and the figures of their chips."""
    read = {name: read_chip(name, not settings.is_dummy) for name in dict.fromkeys(settings.chips)}
    devices: list[_C.DeviceConfig] = []
    figures: list[Mapping[str, float]] = []
    for index, physical in enumerate(settings.physical_devices):
        chip, own_figures = read[settings.chips[physical]]
        memories = [settings.memories[npu] for npu in settings.npus_of(index)]
        if any(bytes is not None for bytes in memories):
            own_figures = all_for_tensors(own_figures)
        devices.append(
            describe_device(
                settings,
                chip,
                own_figures,
                physical=physical,
                driver=settings.driver,
                memory_bytes=sum(chip.memory_bytes if bytes is None else bytes for bytes in memories),
            )
        )
        figures.append(own_figures)
    return devices, figures


def workspace_sizes(own: Mapping[str, float]) -> tuple[int, int]:
    """Return what the libraries of matrix products take of a chip's memory where the program says nothing.

    Args:
        own: the chip's figures.

    Returns:
        Bytes for products, and for products with a bias where those have memory of their own.
    """
    bytes, linear = int(own["workspace_bytes"]), int(own["linear_workspace_bytes"])
    if not bytes and _product_of(own):
        # PyTorch's rule, by the compute capability.
        bytes = 32 << 20 if own["capability_major"] in (9, 10, 12) else 2 * (4096 << 10) + 8 * (16 << 10)
    return bytes, (linear or 1 << 20) if bytes else 0


def describe_device(
    settings: config.Settings,
    chip: _C.Chip,
    figures: Mapping[str, float],
    *,
    physical: int,
    driver: str,
    memory_bytes: int,
) -> _C.DeviceConfig:
    """Return what a device of a chip is made from, with the memory policy that the settings say."""
    return _C.DeviceConfig(
        physical=physical,
        driver=driver,
        memory_bytes=memory_bytes,
        context_bytes=int(figures["context_memory_bytes"]),
        chip=chip,
        lazy=_is_lazy(settings, chip),
    )


def all_for_tensors(figures: Mapping[str, float]) -> Mapping[str, float]:
    """Return a chip's figures where the user says how much memory there is: that is for tensors alone."""
    own: Any = copy.copy(figures)
    own.update(context_memory_bytes=0, driver_memory_bytes=0)
    alone: Mapping[str, float] = own
    return alone


def driver_memory_bytes(index: int) -> int:
    """Return what a device's driver keeps of its memory, which no process is said to use."""
    return int(_chip_figures(index)["driver_memory_bytes"])


def see_dry_run(devices: Sequence[_C.DeviceConfig], figures: Sequence[Mapping[str, float]]) -> str | None:
    """Have the program see new devices in the place of its own; return why not, where that cannot be now."""
    global _figures, _figures_of_program
    with _lock:
        refusal = _C.enter_dry_run(devices=devices)
        if refusal is None:
            _figures_of_program, _figures = _figures, figures
    return refusal


def see_program() -> None:
    """Have the program see its own devices again."""
    global _figures
    with _lock:
        _figures = _figures_of_program
        _C.leave_dry_run()


def _chip(index: int | None = None) -> _C.Chip:
    """Return the chip that a device is, or would be; does not initialise the devices.

    Args:
        index: of the device; the current one if None.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    return _C.chip(index) if is_initialized() else read_chip(_future_chip(index))[0]


def _chip_figures(index: int | None = None) -> Mapping[str, float]:
    """Return the figures of that chip, by the names of :class:`torch_loom.chips.Chip`; 0: not known.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    if is_initialized():
        return _figures[_C.current_device() if index is None else index]
    return read_chip(_future_chip(index))[1]


def _product_name(index: int) -> str:
    """Return what the card that a device is calls itself; empty for what is no GPU."""
    return _product_of(_chip_figures(index))


def _is_gpu() -> bool:
    """Return whether the program's first device is, or would be, a GPU of NVIDIA's.

    Raises:
        ConfigurationError: a setting has a bad value, or the chip's description cannot be used.
    """
    if _figures:
        return bool(_product_of(_figures[0]))
    return _is_gpu_chip(config.resolve().chip)


@functools.lru_cache(maxsize=1)
def _is_gpu_chip(chip: str) -> bool:
    # Asked again and again before the first use, and a description takes some 40 ms to read.
    return bool(_product_of(read_chip(chip)[1]))


def _product_of(figures: Mapping[str, float]) -> str:
    name: str = getattr(figures, "product_name", "")
    return name


def _future_chip(index: int | None) -> str:
    # Before the first use the current device is the first one.
    settings = config.resolve()
    return settings.chips[settings.physical_devices[index]] if index else settings.chip


def _chip_names() -> list[str]:
    """Return the names of the chips that the devices are, or would be, each once, in their order."""
    if is_initialized():
        return list(dict.fromkeys(_C.chip(index).name for index in range(_C.device_count())))
    settings = config.resolve()
    chips = [settings.chips[physical] for physical in settings.physical_devices]
    return list(dict.fromkeys(read_chip(chip)[0].name for chip in dict.fromkeys(chips)))


def _no_device_message(settings: config.Settings) -> str:
    setting: config.Setting[Any] = config.DEVICES
    if settings.devices:
        hiding = (config.VISIBLE_DEVICES, config.RBLN_VISIBLE_DEVICES, config.RBLN_DEVICES)
        if settings.device_name == config.CUDA_NAME:
            hiding = (config.VISIBLE_DEVICES, config.CUDA_VISIBLE_DEVICES, config.CUDA_VISIBLE_DEVICES)
        setting = next((each for each in hiding if config.raw_value(each)[0] is not None), hiding[-1])
    # torch.cuda's sentence, word for word: libraries and tests search for it.
    what = "CUDA GPUs" if settings.device_name == config.CUDA_NAME else f"{settings.device_name} devices"
    return f"No {what} are available: {config.describe(setting)}"


def _lazy_call(callable: Callable[[], None], kind: str | None = None) -> None:
    """Call ``callable`` now if the devices are in use, else when they first are.

    ``kind`` names calls of which only the last matters, such as seeds: a later call replaces an earlier one.
    """
    with _lock:
        if not is_initialized():
            _deferred.add(callable, kind)
            return
    callable()


def _device_count() -> int:
    """Return how many devices there are, or would be, without initialising them."""
    return _C.device_count() if _ready else len(config.resolve().physical_devices)


def _peek_device_count() -> int:
    # For C++ callers that may not throw; a bad configuration is reported by _lazy_init at first use.
    try:
        return len(config.resolve().physical_devices)
    except Exception:
        return 0


def _after_fork_in_child() -> None:
    global _lock, _initializing, _is_poisoned_child
    # Another thread of the parent may have held it while the process was forked.
    _lock = threading.RLock()
    _initializing = False
    _is_poisoned_child = _is_poisoning_forks


os.register_at_fork(after_in_child=_after_fork_in_child)
