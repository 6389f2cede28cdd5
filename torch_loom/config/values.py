"""The values of all settings, once they have been checked against one another."""

from __future__ import annotations

import uuid
from typing import NamedTuple

from torch_loom.config import rbln

_NAMESPACE = uuid.UUID("b0a7a1b6-35d5-5bd0-9df2-4bd6e7a0c1f3")


def device_uuid(machine: str, place: str) -> uuid.UUID:
    """Return the identifier of a device, by its machine's name and its place there: the same everywhere."""
    return uuid.uuid5(_NAMESPACE, f"{machine}/{place}")


class Settings(NamedTuple):
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
        chaos_seed: the seed of the order under ``"chaos"``; None for another seed in each process.
        protect: whether host access to device memory faults.
        clock: ``"simulated"`` or ``"wall"``.
        sanitizer: whether races between streams are reported.
        machine: whose devices they are, for telemetry; ``"none"`` for this process's alone.
        device_groups: which of the visible NPUs, counted from 0, make each device; None if each is a device.
        fallback: ``"allow"``, ``"warn"`` or ``"error"``.
        log_level: ``"DEBUG"``, ``"INFO"``, ``"WARNING"`` or ``"ERROR"``; None leaves it to Python's logging.
        host_memory_bytes: the most host memory that the process may use; None for what the host has.
        asserts: ``"immediate"`` or ``"device"``: where an error that values cause is raised.
        rng: ``"auto"``, ``"cuda"`` or ``"loom"``: whose random numbers the devices draw.
        is_dummy: whether the devices execute nothing: RBLN_DUMMY_DEVICE.
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
    host_memory_bytes: int | None = None
    asserts: str = "immediate"
    rng: str = "auto"
    is_dummy: bool = False

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
        """The chip of the program's first device; the machine's first chip if the program has no device."""
        return self.chips[self.physical_devices[0]] if self.physical_devices else self.chips[0]

    @property
    def memory_bytes(self) -> int | None:
        """The capacity of the first NPU; None for its chip's."""
        return self.memories[self.visible_npus[0]] if self.visible_npus else self.memories[0]

    def npus_of(self, device: int) -> tuple[int, ...]:
        """The physical indices of the NPUs that make a device; they are of one chip."""
        return tuple(self.visible_npus[npu] for npu in self.groups[device])
