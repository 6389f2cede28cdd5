"""The device name rbln: what the vendor's variables take, and the devices of several NPUs that they describe.

The NPUs that a process sees are its pool, numbered from 0. A group of them is one device of the program. The
messages are the vendor's.
"""

from __future__ import annotations

import re

# The vendor's name of the device, and the chip that it is then.
NAME = "rbln"
CHIP = "atom"

Groups = tuple[tuple[int, ...], ...]

# How many NPUs a device may have.
SIZES = (1, 2, 4, 8, 16, 32)

# The words that TORCH_RBLN_DISABLE_FALLBACK may have.
FALLBACKS = ("compile_error", "non_blocking_copy", "strided_copy_error", "unsupported_op", "all")

_MAP = "RBLN_DEVICE_MAP"

OFFLOAD_FOLDER = "~/.cache/rbln_cache/offload"
"""Where RBLN_OFFLOAD_DIR is by default, as the vendor has it."""

_YES, _NO = ("1", "true", "t", "on", "yes", "y"), ("0", "false", "f", "off", "no", "n")


def parse_boolean(text: str) -> bool:
    """Return what one of the vendor's words for yes and no means; case does not matter.

    Raises:
        ValueError: the text is none of them.
    """
    word = text.strip().lower()
    if word not in (*_YES, *_NO):
        raise ValueError("not a boolean")
    return word in _YES


def refusal(what: str) -> str:
    """Return the message for what RBLN_DUMMY_DEVICE cannot execute: the vendor's sentence, and help."""
    return (
        f"RBLN_DUMMY_DEVICE has no NPU and cannot execute {what}. It has tensors, copies between host and "
        "device, and torch.compile(…, options={'mode': ['compile_only']}), which builds without running. "
        "Unset RBLN_DUMMY_DEVICE to run on a virtual NPU."
    )


def parse_fallbacks(text: str) -> tuple[str, ...]:
    """Return the words of a list such as ``unsupported_op,compile_error``.

    Raises:
        ValueError: a word is none of :data:`FALLBACKS`.
    """
    names = tuple(part.strip() for part in text.split(",") if part.strip())
    for name in names:
        if name not in FALLBACKS:
            raise ValueError(f"no such word: {name!r}")
    return names


def parse_npus_per_device(text: str) -> int:
    """Return how many NPUs a device has, from text such as ``2``.

    Raises:
        ValueError: the text is no whole number, or no device can have so many.
    """
    if re.fullmatch(r"-?[0-9]{1,9}", text.strip()) is None:
        raise ValueError("not a whole number")
    size = int(text)
    if size <= 0:
        raise ValueError("RBLN_NPUS_PER_DEVICE must be a positive integer")
    if size not in SIZES:
        raise ValueError(
            f"RBLN_NPUS_PER_DEVICE must be one of the valid sizes: {_sizes()}. Got {size} which is invalid"
        )
    return size


def parse_map(text: str) -> Groups:
    """Return the groups that text such as ``[0,1],[2,3]`` means.

    Blanks, and commas between the groups, may be left out; an empty group is no device.

    Raises:
        ValueError: the text has another form, no group, a group of a size that no device can have, or names
            an NPU twice.
    """
    groups: list[tuple[int, ...]] = []
    position = 0
    while position < len(text):
        if text[position] in " ,":
            position += 1
            continue
        if text[position] != "[":
            raise _bad_form(f"Expected '[' at position {position}. Format: \"[0,1],[2,3]\"")
        group, position = _parse_group(text, position + 1)
        if group:
            groups.append(group)
    _check_groups(groups)
    return tuple(groups)


def _parse_group(text: str, position: int) -> tuple[tuple[int, ...], int]:
    """Return the group that begins at ``position``, and where the text goes on behind its bracket."""
    end = text.find("]", position)
    inside = text[position:end] if end >= 0 else text[position:]
    for offset, character in enumerate(inside):
        # isdigit() alone also takes other digits than ASCII's.
        if character not in " ," and not (character.isascii() and character.isdigit()):
            raise _bad_form(f"Unexpected character '{character}' at position {position + offset}")
    if end < 0:
        raise _bad_form(f"Expected ']' at position {len(text)}")
    numbers = (part.replace(" ", "") for part in inside.split(","))
    return tuple(int(number) for number in numbers if number), end + 1


def _check_groups(groups: list[tuple[int, ...]]) -> None:
    if not groups:
        raise ValueError(f"{_MAP} must contain at least one logical device mapping")
    seen: set[int] = set()
    for group in groups:
        if len(group) not in SIZES:
            raise ValueError(
                f"Each logical device mapping in {_MAP} must contain a valid number of physical NPUs. "
                f"Valid sizes are: {_sizes()}. Mapping with {len(group)} physical NPU(s) is invalid"
            )
        for npu in group:
            if npu in seen:
                raise ValueError(f"Physical NPU {npu} is already assigned to another logical device")
            seen.add(npu)


def select(groups: Groups, pool: int) -> Groups:
    """Return ``groups`` if a pool of so many NPUs has them all.

    Raises:
        ValueError: an NPU is not in the pool.
    """
    for npu in (npu for group in groups for npu in group):
        if npu >= pool:
            raise ValueError(
                f"Physical NPU {npu} out of range (this process has {pool} physical NPU(s), "
                f"valid 0..{pool - 1}; TORCH_LOOM_DEVICES says how many the machine has)"
            )
    return groups


def divide(pool: int, size: int) -> Groups:
    """Return a pool of NPUs in groups of ``size``; those that are left over belong to none.

    Raises:
        ValueError: the pool is not empty, and too small for one group.
    """
    if 0 < pool < size:
        raise ValueError(
            f"No logical device (this process has {pool} physical NPU(s), need {size} per logical device; "
            "TORCH_LOOM_DEVICES says how many the machine has)"
        )
    return tuple(tuple(range(first, first + size)) for first in range(0, pool - size + 1, size))


def stand_ins(device_map: Groups | None, size: int) -> Groups:
    """Return the groups of NPUs that there are not, numbered from 0: those of a map, or one of ``size``.

    The numbers in the map are the shape alone.
    """
    sizes = [size] if device_map is None else [len(group) for group in device_map]
    firsts = [sum(sizes[:place]) for place in range(len(sizes))]
    return tuple(tuple(range(first, first + own)) for first, own in zip(firsts, sizes, strict=True))


def _sizes() -> str:
    return ", ".join(str(size) for size in SIZES)


def _bad_form(what: str) -> ValueError:
    return ValueError(f"Invalid {_MAP} format. {what}")
