"""Random numbers: one generator per device, with CUDA's 16-byte Philox state (seed, offset)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import overload

import torch
from torch.types import Device

from torch_loom import _C
from torch_loom.device._core.device_index import DEVICE_TYPE, _check_index, _existing_index, _get_device_index
from torch_loom.device._core.first_use import _device_count, _lazy_call, _lazy_init
from torch_loom.device._core.first_use import is_initialized as is_initialized

# torch.cuda.random has these names too.
from torch_loom.device.devices import current_device as current_device
from torch_loom.device.devices import device_count as device_count

__all__ = [
    "default_generators",
    "get_rng_state",
    "get_rng_state_all",
    "initial_seed",
    "manual_seed",
    "manual_seed_all",
    "seed",
    "seed_all",
    "set_rng_state",
    "set_rng_state_all",
]

STATE_BYTES = 16
SEED_BYTES = 8
_MIN_SEED = -0x8000_0000_0000_0000
_MAX_SEED = 0xFFFF_FFFF_FFFF_FFFF


class _DefaultGenerators(Sequence[torch.Generator]):
    """The default generator of each device; reading one initialises the devices."""

    def __repr__(self) -> str:
        return f"<default generators of {len(self)} {DEVICE_TYPE} devices>"

    @overload
    def __getitem__(self, index: int) -> torch.Generator: ...
    @overload
    def __getitem__(self, index: slice) -> tuple[torch.Generator, ...]: ...
    def __getitem__(self, index: int | slice) -> torch.Generator | tuple[torch.Generator, ...]:
        count = len(self)
        if isinstance(index, slice):
            return tuple(self[position] for position in range(count)[index])
        if not -count <= index < count:
            raise IndexError(f"Invalid device index {index}: the number of {DEVICE_TYPE} devices is {count}")
        _lazy_init()
        return _C.default_generator(index % count)

    def __iter__(self) -> Iterator[torch.Generator]:
        return (self[index] for index in range(len(self)))

    def __len__(self) -> int:
        return _device_count()


default_generators: Sequence[torch.Generator] = _DefaultGenerators()


def _checked_seed(seed: int) -> int:
    seed = int(seed)
    if not _MIN_SEED <= seed <= _MAX_SEED:
        raise RuntimeError(f"Overflow: seed {seed} is outside [{_MIN_SEED:#x}, {_MAX_SEED:#x}]")
    return seed


def _get_generator(device: torch.device) -> torch.Generator:
    """Return the default generator of a device."""
    return _C.default_generator(_existing_index(device))


def _check_early(device: Device) -> None:
    # A call that waits for first use is checked where it is made, as far as that needs no device.
    if not (device is None or torch.device(device) == torch.device(DEVICE_TYPE)):
        _check_index(_get_device_index(device))


def get_rng_state(device: Device = DEVICE_TYPE) -> torch.Tensor:
    """Return the state of a device's generator: 16 bytes on the cpu, 64-bit seed and 64-bit offset.

    Args:
        device: which one; the current one by default.

    Raises:
        InvalidDeviceError: there is no such device.
    """
    return _C.default_generator(_existing_index(device)).get_state()


def get_rng_state_all() -> list[torch.Tensor]:
    """Return the state of the generator of each device; see :func:`get_rng_state`."""
    return [get_rng_state(index) for index in range(_device_count())]


def set_rng_state(new_state: torch.Tensor, device: Device = DEVICE_TYPE) -> None:
    """Set the state of a device's generator. Before first use this is remembered and done then.

    Args:
        new_state: a cpu tensor of 16 bytes, from :func:`get_rng_state`, or of 8: a seed, with offset 0.
        device: which one; the current one by default.

    Raises:
        TypeError: ``new_state`` is not a cpu tensor of bytes.
        RuntimeError: it has another size.
        InvalidDeviceError: there is no such device.
    """
    if not isinstance(new_state, torch.Tensor):
        raise TypeError(f"RNG state must be a torch.ByteTensor, but got {type(new_state).__name__}")
    if new_state.dtype != torch.uint8 or new_state.device.type != "cpu":
        raise TypeError(
            "RNG state must be a torch.ByteTensor on the cpu, but got one of "
            f"{new_state.dtype} on {new_state.device}"
        )
    if new_state.numel() not in (STATE_BYTES, SEED_BYTES):
        raise RuntimeError(
            f"RNG state is wrong size: it must have {STATE_BYTES} bytes (seed and offset) or {SEED_BYTES} "
            f"(seed), but got {new_state.numel()}"
        )
    _check_early(device)
    state = new_state.clone(memory_format=torch.contiguous_format)

    def set_state() -> None:
        _C.default_generator(_existing_index(device)).set_state(state)

    _lazy_call(set_state)


def set_rng_state_all(new_states: Iterable[torch.Tensor]) -> None:
    """Set the state of the generators of devices 0, 1, …; see :func:`set_rng_state`.

    Raises:
        InvalidDeviceError: there are more states than devices.
    """
    for index, state in enumerate(new_states):
        set_rng_state(state, index)


def manual_seed(seed: int) -> None:
    """Seed the generator of the current device. Before first use this is remembered; ignored without devices.

    Args:
        seed: an integer in ``[-2**63, 2**64)``; all 64 bits count.

    Raises:
        RuntimeError: the seed does not fit.
    """
    seed = _checked_seed(seed)

    def set_seed() -> None:
        _C.default_generator(_C.current_device()).manual_seed(seed)

    _lazy_call(set_seed, kind="seed")


def manual_seed_all(seed: int) -> None:
    """Seed the generators of all devices. Before first use this is remembered; ignored without devices.

    Args:
        seed: an integer in ``[-2**63, 2**64)``; all 64 bits count.

    Raises:
        RuntimeError: the seed does not fit.
    """
    seed = _checked_seed(seed)

    def set_seed() -> None:
        for generator in default_generators:
            generator.manual_seed(seed)

    _lazy_call(set_seed, kind="seed_all")


def seed() -> None:
    """Seed the generator of the current device with a random number. Ignored without devices."""

    def set_seed() -> None:
        _C.default_generator(_C.current_device()).seed()

    _lazy_call(set_seed, kind="seed")


def seed_all() -> None:
    """Seed the generators of all devices with one random number. Ignored without devices."""

    def set_seed() -> None:
        random_seed = default_generators[0].seed()
        for generator in default_generators:
            generator.manual_seed(random_seed)

    _lazy_call(set_seed, kind="seed_all")


def initial_seed() -> int:
    """Return the seed of the current device's generator.

    Raises:
        NoDeviceError: there are no devices.
    """
    return _C.default_generator(_existing_index(None)).initial_seed()


def _get_rng_state_offset(device: Device = DEVICE_TYPE) -> int:
    """Return the offset of a device's generator."""
    return _C.default_generator(_existing_index(device)).get_offset()


def _set_rng_state_offset(offset: int, device: Device = DEVICE_TYPE) -> None:
    """Set the offset of a device's generator. Before first use this is remembered and done then."""
    _check_early(device)

    def set_offset() -> None:
        _C.default_generator(_existing_index(device)).set_offset(offset)

    _lazy_call(set_offset)
