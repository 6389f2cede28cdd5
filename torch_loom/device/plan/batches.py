"""How large a batch fits: what a dry run allocated is allocated once more, with larger activations.

A device's allocator decides what fits, not the sum of the sizes: cached blocks are split, reused, and given
back only where nothing in their segment is in use. So allocations are replayed on devices like the dry run's.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence

import torch

from torch_loom import _C
from torch_loom.device.plan.casts import Cast

# (time_ns, address, bytes, device, is_workspace), bytes below 0 where memory is given back.
Event = tuple[int, ...]

# What is tried: two digits. Beyond the last, memory that does not grow with the batch would decide.
FACTORS = (
    *(tenths / 10 for tenths in range(10, 100)),
    *map(float, range(10, 100)),
    *map(float, range(100, 1001, 10)),
)
# A replay ends here: later steps allocate as the first ones.
MAX_EVENTS = 400_000
# A user takes a batch that is a bit smaller than advised, and that must fit as well.
_SMALLER = (0.98, 0.95, 0.9)
_ROUNDING_BYTES = 512


def growing(
    events: Sequence[Event],
    category_of: Mapping[int, str],
    setup_end: int,
    updates: Sequence[tuple[int, int]],
    casts: Sequence[Cast],
) -> set[int]:
    """Return which allocations are larger with a larger batch, as places among the events.

    These are activations and the workspaces of single calls. Left out is what optimizers take for as long as
    they make a step, and what was given back within the setup: making a model does not depend on the batch.

    Args:
        events: of memory, in the order of issue.
        category_of: what an allocation is for; what has none is an activation.
        setup_end: how many events belong to the setup.
        updates: begin and end of the steps of optimizers, as places among the events.
        casts: copies in another type. Those of whole parameters do not depend on the batch.
    """
    is_fixed: set[int] = set()
    for begin, end in updates:
        is_fixed.update(range(begin, end))
    found = set()
    current: dict[int, int] = {}
    waiting = iter([*casts, Cast(len(events) + 1, 0, 0, 0)])
    cast = next(waiting)
    for number, (_, address, size, _, is_workspace) in enumerate(events):
        while cast.position <= number:
            parameter = current.get(cast.read, -1)
            if category_of.get(parameter) == "parameters" and cast.read_bytes <= events[parameter][2]:
                found.discard(current.get(cast.written, -1))
            cast = next(waiting)
        if size > 0:
            current[address] = number
            is_activation = category_of.get(number, "activations") == "activations"
            if is_activation and not is_workspace and number not in is_fixed:
                found.add(number)
            continue
        taken = current.pop(address, None)
        if taken is None:
            continue
        if number < setup_end:
            found.discard(taken)
        elif events[taken][4]:
            found.add(taken)
    return found


def largest_factor(
    events: Sequence[Event],
    grows: Collection[int],
    capacities: Sequence[int],
    held: Sequence[int],
) -> float | None:
    """Return how many times as large a batch fits on the devices of this moment, by two digits, rounded down.

    Args:
        events: as in :func:`growing`, of a program that fits.
        grows: what :func:`growing` returned.
        capacities: bytes that each device has for tensors.
        held: the most that each device's allocator held in the program itself.

    Returns:
        one of ``FACTORS``; None if nothing grows.
    """
    bound = _bound(events, grows, capacities)
    if bound is None:
        return None
    events = events[:MAX_EVENTS]
    reserved = _peaks(lambda: _fits(events, grows, 1.0, [0] * len(capacities)), len(capacities))
    # Streams and private pools, which a replay does not know, keep memory apart: leave room for that.
    ballast = [
        int(capacity * max(0.0, 1 - replayed / most)) if most else 0
        for capacity, replayed, most in zip(capacities, reserved, held, strict=True)
    ]

    def fits(factor: float) -> bool:
        return _fits(events, grows, factor, ballast)

    # The program itself fits.
    low, high = 0, bisect_right(FACTORS, bound)
    while high - low > 1:
        middle = (low + high) // 2
        if fits(FACTORS[middle]):
            low = middle
        else:
            high = middle
    while low and not all(fits(max(1.0, FACTORS[low] * smaller)) for smaller in _SMALLER):
        low -= 1
    return FACTORS[low]


def _bound(events: Sequence[Event], grows: Collection[int], capacities: Sequence[int]) -> float | None:
    """Return the factor up to which there is memory at every moment; None if nothing grows."""
    fixed = [0] * len(capacities)
    large = [0] * len(capacities)
    sizes: dict[tuple[int, int], tuple[list[int], int]] = {}
    bound = math.inf
    for number, (_, address, size, device, _) in enumerate(events):
        if size > 0:
            used = large if number in grows else fixed
            used[device] += size
            sizes[device, address] = used, size
            if large[device]:
                bound = min(bound, (capacities[device] - fixed[device]) / large[device])
        elif taken := sizes.pop((device, address), None):
            taken[0][device] -= taken[1]
    return None if bound is math.inf else bound


def _fits(events: Sequence[Event], grows: Collection[int], factor: float, ballast: Sequence[int]) -> bool:
    """Allocate and free as the events do; return whether memory suffices."""
    current: dict[tuple[int, int], int] = {}
    try:
        for device, size in enumerate(ballast):
            if size:
                current[device, 0] = _C.raw_alloc(size, device, 0)
        for number, (_, address, size, device, _) in enumerate(events):
            if size > 0:
                if number in grows:
                    size = math.ceil(size * factor / _ROUNDING_BYTES) * _ROUNDING_BYTES
                current[device, address] = _C.raw_alloc(size, device, 0)
            elif taken := current.pop((device, address), None):
                _C.raw_delete(taken)
    except torch.OutOfMemoryError:
        return False
    finally:
        for taken in current.values():
            _C.raw_delete(taken)
        for device in range(len(ballast)):
            _C.empty_cache(device)
    return True


def _peaks(run: Callable[[], object], num_devices: int) -> list[int]:
    """Return the most that each device's allocator holds while something runs."""
    for device in range(num_devices):
        _C.reset_peak_memory_stats(device)
    run()
    return [int(_C.memory_stats(device)["reserved_bytes.all.peak"]) for device in range(num_devices)]
