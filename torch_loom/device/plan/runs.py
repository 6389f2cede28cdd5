"""The context of a dry run."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping
from types import TracebackType

import torch

from torch_loom import _C, config
from torch_loom.config import dry_runs
from torch_loom.device._core import clock, first_use
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device.plan.figures import DryRunPlan
from torch_loom.device.plan.files import KeptFiles
from torch_loom.device.plan.host import CostlessHost
from torch_loom.device.plan.recording import Recording
from torch_loom.errors import ConfigurationError, DryRunError

_Chip = str | os.PathLike[str]


class dry_run:  # noqa: N801 (used like a function, as torch.no_grad is)
    """Context in which the program's devices are others, which compute nothing and have no contents.

    Inside, ``"loom:0"`` is a device of the driver ``null``: ops check and infer shapes and dtypes, memory is
    counted and runs out, time is simulated, and nothing is computed: a value that is read is 0 (False), but
    what ``all`` returned is True, as checks pass; a warning says so, once for each line. Large tensors of the
    host that are made inside take no memory either, and have zeros in them, so that models larger than this
    machine can be made. Everything that belongs to devices is the dry run's: their number, the current device
    and streams, generators, statistics of memory. That holds for all threads of the process.

    Files of tensors are not written: ``torch.save`` and ``safetensors.torch.save_file`` leave their paths as
    they are, warn once, and until the end loading such a path gives what was saved, with zeros. Threads that
    were there before the dry run began, other than the one that began it, read and write files as ever.

    A tensor belongs to the devices on which it was made. A tensor from outside is refused inside, and a
    tensor from inside is refused afterwards: it keeps its shape and dtype, and is freed as any other. Make
    the model and its inputs inside.

    There may be more devices than the program has. Only a backward pass with autograd's own threads
    (``torch.autograd.set_multithreading_enabled(True)``) is then refused: PyTorch makes those once, one for
    each of the program's devices.

    Args:
        chip: what the devices are: a chip's name or the path of a description, or a list, one for each;
            if None, what the program's devices are.
        devices: how many there are, 1 to 64; if None, as many as the lists have, or as the program has.
        memory: capacity of each, in bytes or as a size such as ``"16GiB"``, or a list; if None, their chips'.

    Raises:
        ConfigurationError: an argument is bad, or they contradict one another; when the context is entered,
            also: a chip's description cannot be used.
        DryRunError: when it is entered: another dry run is under way, or a graph is being captured.

    Example:
        >>> with torch.loom.dry_run(chip="h200", devices=1) as plan:
        ...     x = torch.empty(1 << 20, device="loom")
        >>> plan.peak_memory_bytes(0)
        4194304
    """

    def __init__(
        self,
        *,
        chip: _Chip | Iterable[_Chip] | None = None,
        devices: int | None = None,
        memory: int | str | Iterable[int | str] | None = None,
    ) -> None:
        self._request = dry_runs.request(chip, devices, memory)
        self._plan: DryRunPlan | None = None
        self._host = CostlessHost()
        self._files = KeptFiles(self._host)
        self._backward_threads: torch.autograd.set_multithreading_enabled | None = None

    def __enter__(self) -> DryRunPlan:
        first_use.init()
        if self._plan is not None or _C.world():
            raise DryRunError(
                f"torch.{DEVICE_TYPE}.dry_run(): a dry run is under way, and one cannot be within another: "
                "its devices are those of the whole process. End it first."
            )
        _C.choose_backward_thread()
        devices, figures = _described(self._request)
        if (reason := first_use.see_dry_run(devices, figures)) is not None:
            raise DryRunError(f"torch.{DEVICE_TYPE}.dry_run(): {reason}")
        try:
            clock.start()
            recording = Recording([_library_figures(own) for own in figures])
            recording.start()
            _C.take_value_reads()  # those of others
            self._files.start()
            self._host.listener = recording
            self._host.__enter__()  # type: ignore[no-untyped-call]
            if DEVICE_TYPE == config.CUDA_NAME:
                # There the engine's threads are the default, and they are as many as the program's devices.
                self._backward_threads = torch.autograd.set_multithreading_enabled(False)
        except BaseException:
            self._files.stop()
            _C.stop_simulating_time()
            first_use.see_program()
            raise
        self._plan = DryRunPlan(recording, self._files.paths, (devices, figures))
        return self._plan

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        plan, self._plan = self._plan, None
        # In a forked child the devices are the parent's.
        if plan is None or first_use._is_in_bad_fork():
            return
        if isinstance(error, torch.OutOfMemoryError):
            plan.out_of_memory = str(error)
        try:
            self._host.__exit__(kind, error, traceback)  # type: ignore[no-untyped-call]
            self._host.listener = None
            plan._end()
        finally:
            if self._backward_threads is not None:
                self._backward_threads.__exit__(None, None, None)
            self._files.stop()
            _C.stop_simulating_time()
            first_use.see_program()


def _described(
    request: dry_runs.Request,
) -> tuple[list[_C.DeviceConfig], list[Mapping[str, float]]]:
    """Return what the dry run's devices are made from, and the figures of their chips."""
    settings = config.resolve()
    count = _C.device_count() if request.num_devices is None else request.num_devices
    names = request.chips if request.chips is None or len(request.chips) == count else request.chips * count
    read = {name: first_use.read_chip(name) for name in dict.fromkeys(names or ())}
    devices: list[_C.DeviceConfig] = []
    figures: list[Mapping[str, float]] = []
    for index in range(count):
        if names is None:
            model = _model(index, count)
            chip, own_figures = _C.chip(model), first_use._chip_figures(model)
            memory_bytes = int(str(_C.device_properties(model)["total_memory"]))
        else:
            chip, own_figures = read[names[index]]
            memory_bytes = chip.memory_bytes
        if request.memories is not None:
            memory_bytes = request.memories[index % len(request.memories)]
            own_figures = first_use.all_for_tensors(own_figures)
        devices.append(
            first_use.describe_device(
                settings, chip, own_figures, physical=index, driver="null", memory_bytes=memory_bytes
            )
        )
        figures.append(own_figures)
    return devices, figures


def _library_figures(own: Mapping[str, float]) -> tuple[int, int, int, int]:
    """Return the figures that say what the libraries of a chip take: none of a chip that says nothing."""
    workspace, linear = first_use.workspace_sizes(own)
    cores, threads = (int(own[name]) for name in ("num_cores", "max_threads_per_core"))
    return (workspace, linear, cores, threads) if workspace else (0, 0, 0, 0)


def _model(index: int, count: int) -> int:
    """Return which of the program's devices a dry run's is like, where no chip was given."""
    own = [(_C.chip(i).name, _C.device_properties(i)["total_memory"]) for i in range(_C.device_count())]
    if index < len(own) and count <= len(own):
        return index
    if len(set(own)) > 1:
        raise ConfigurationError(
            f"dry_run(devices={count}): the program has {len(own)} devices that are not alike; say with "
            "chip= what each of the dry run's is"
        )
    return 0
