"""What a device is: the fields of torch.cuda's properties, and some of ours."""

from __future__ import annotations

import uuid as _uuid
from collections.abc import Mapping
from dataclasses import dataclass, field, fields

from torch_loom import _C, config
from torch_loom.device._core.device_index import DEVICE_TYPE
from torch_loom.device._core.first_use import _chip_figures, _product_name

_KHZ_PER_MHZ = 1000
_MIB = 1 << 20


@dataclass(frozen=True)
class DeviceProperties:
    """What a device is: its chip's description, with the names and units of torch.cuda. 0: not known.

    Attributes:
        name: the name of its chip; under the name cuda what the card calls itself, where that is known.
        total_memory: capacity in bytes.
        driver: the name of the driver behind it, ``"virtual"``, ``"null"`` or that of a library.
        engine: the PyTorch device type whose kernels do its arithmetic.
        major, minor: the chip's capability.
        multi_processor_count: how many cores the chip has.
        clock_rate: the highest core clock, in kHz; ``clock_rate_mhz`` is the same in MHz.
        memory_clock_rate: of the device memory, in kHz.
        memory_bus_width: of the device memory, in bits.
        L2_cache_size: in bytes.
        warp_size: how many threads run in lockstep.
        max_threads_per_multi_processor, max_threads_per_block: of a core, and of a group of threads on it.
        regs_per_multiprocessor: registers of 32 bits.
        shared_memory_per_block, shared_memory_per_block_optin, shared_memory_per_multiprocessor: in bytes.
        is_integrated, is_multi_gpu_board: 1 or 0: whether it shares the host's memory; whether it shares a
            board, which none does.
        gcnArchName: the same name.
        uuid: made from the machine's name and the physical index: the same in every process.
        pci_bus_id, pci_device_id, pci_domain_id: made up: the physical index plus 1, 0 and 0.
        extra: what else there is: ``memory_policy`` (``"eager"`` or ``"lazy"``), ``physical_index``, and the
            name of the ``chip``.
    """

    name: str
    total_memory: int
    driver: str
    engine: str
    major: int = 1
    minor: int = 0
    multi_processor_count: int = 0
    clock_rate_mhz: int = 0
    clock_rate: int = 0
    memory_clock_rate: int = 0
    memory_bus_width: int = 0
    L2_cache_size: int = 0
    warp_size: int = 0
    max_threads_per_multi_processor: int = 0
    max_threads_per_block: int = 0
    regs_per_multiprocessor: int = 0
    shared_memory_per_block: int = 0
    shared_memory_per_block_optin: int = 0
    shared_memory_per_multiprocessor: int = 0
    is_integrated: int = 0
    is_multi_gpu_board: int = 0
    gcnArchName: str = ""  # noqa: N815 (the name in torch.cuda)
    uuid: _uuid.UUID = field(default_factory=lambda: _uuid.UUID(int=0))
    pci_bus_id: int = 0
    pci_device_id: int = 0
    pci_domain_id: int = 0
    extra: Mapping[str, object] = field(default_factory=dict, compare=False)

    def __repr__(self) -> str:
        if DEVICE_TYPE == config.CUDA_NAME:
            # As PyTorch prints CUDA's.
            return (
                f"_CudaDeviceProperties(name='{self.name}', major={self.major}, minor={self.minor}, "
                f"total_memory={self.total_memory // _MIB}MB, "
                f"multi_processor_count={self.multi_processor_count}, uuid={self.uuid}, "
                f"pci_bus_id={self.pci_bus_id}, pci_device_id={self.pci_device_id}, "
                f"pci_domain_id={self.pci_domain_id}, L2_cache_size={self.L2_cache_size // _MIB}MB)"
            )
        shown = (f"{each.name}={getattr(self, each.name)!r}" for each in fields(self))
        return f"{type(self).__name__}({', '.join(shown)})"


def uuid_of(physical: int) -> _uuid.UUID:
    """Return the identifier of a device of this machine, by its physical index."""
    return config.device_uuid(config.resolve().machine, _place(physical))


def _place(physical: int) -> str:
    # A device of a dry run is no device of the machine.
    return f"dry run/{physical}" if _C.world() else str(physical)


def properties_of(index: int) -> DeviceProperties:
    """Return what an existing device is."""
    known = dict(_C.device_properties(index))
    chip_figures = _chip_figures(index)
    figures = {name: int(value) for name, value in chip_figures.items()}
    physical = known["physical_index"]
    assert isinstance(physical, int)
    base = (
        "name",
        "total_memory",
        "driver",
        "engine",
        "major",
        "minor",
        "multi_processor_count",
        "clock_rate_mhz",
    )
    own = {name: known.pop(name) for name in base}
    known["chip"] = own["name"]
    # Programs know cards by the names that CUDA's driver gives.
    if DEVICE_TYPE == config.CUDA_NAME and (product := _product_name(index)):
        own["name"] = product
    return DeviceProperties(
        **own,  # type: ignore[arg-type]
        clock_rate=figures["clock_mhz"] * _KHZ_PER_MHZ,
        memory_clock_rate=figures["memory_clock_mhz"] * _KHZ_PER_MHZ,
        memory_bus_width=figures["memory_bus_bits"],
        L2_cache_size=figures["l2_cache_bytes"],
        warp_size=figures["warp_size"],
        max_threads_per_multi_processor=figures["max_threads_per_core"],
        max_threads_per_block=figures["max_threads_per_block"],
        regs_per_multiprocessor=figures["registers_per_core"],
        shared_memory_per_block=figures["shared_memory_per_block_bytes"],
        shared_memory_per_block_optin=figures["shared_memory_per_block_optin_bytes"],
        shared_memory_per_multiprocessor=figures["shared_memory_per_core_bytes"],
        is_integrated=figures["is_integrated"],
        gcnArchName=str(own["name"]),
        uuid=uuid_of(physical),
        pci_bus_id=physical + 1,
        extra=known,
    )
