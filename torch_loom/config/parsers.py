"""What the text of a setting means: a value, or ValueError with the reason."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Device names with a meaning: the default, CUDA's and the vendor's.
DEVICE_NAMES = ("loom", "cuda", "rbln")
MAX_DEVICES = 64
MIN_MEMORY_BYTES = 2 << 20
MAX_MEMORY_BYTES = 16 << 40
MAX_SEED = (1 << 64) - 1

_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([KMGT]?I?B)?", re.IGNORECASE | re.ASCII)
_UNIT_BYTES = {
    "B": 1,
    **{f"{prefix}B": 1000**power for power, prefix in enumerate("KMGT", 1)},
    **{f"{prefix}IB": 1024**power for power, prefix in enumerate("KMGT", 1)},
}


def parse_size(text: str) -> int:
    """Return the number of bytes that a human size such as ``512MiB``, ``1.5GiB`` or ``4096`` means.

    Units: B, KiB, MiB, GiB, TiB (powers of 1024) and KB, MB, GB, TB (powers of 1000), in any case; without a
    unit the number is bytes. A fraction of a byte is dropped.

    Raises:
        ValueError: the text is not a size.
    """
    match = _SIZE.fullmatch(text.strip())
    if match is None or (match[2] is None and "." in match[1]):
        raise ValueError("not a size in bytes")
    whole, _, decimals = match[1].partition(".")
    bytes: int = int(whole + decimals) * _UNIT_BYTES[(match[2] or "B").upper()] // 10 ** len(decimals)
    return bytes


def parse_int(text: str) -> int:
    # int() also takes "1_000" and other digits than ASCII's; a setting does not.
    if re.fullmatch(r"[0-9]{1,9}", text.strip()) is None:
        raise ValueError("not a whole number")
    return int(text)


def parse_devices(text: str) -> int:
    count = parse_int(text)
    if count > MAX_DEVICES:
        raise ValueError("too many")
    return count


def parse_memory(text: str) -> int:
    """Return the capacity of a device that a size means.

    Raises:
        ValueError: the text is no size, or no device can have so much.
    """
    size_bytes = parse_size(text)
    if not MIN_MEMORY_BYTES <= size_bytes <= MAX_MEMORY_BYTES:
        raise ValueError("out of range")
    return size_bytes


def parse_memories(text: str) -> tuple[int, ...]:
    return parse_list(text, parse_memory)


def parse_list(text: str, parse_one: Callable[[str], T]) -> tuple[T, ...]:
    values = tuple(parse_one(part.strip()) for part in text.split(","))
    if len(values) > MAX_DEVICES:
        raise ValueError("too many")
    return values


def parse_indices(text: str) -> tuple[int, ...]:
    if not text.strip():
        return ()
    indices = tuple(parse_int(part) for part in text.split(","))
    if len(set(indices)) != len(indices):
        raise ValueError("an index appears twice")
    return indices


def one_of(*values: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in values:
            raise ValueError("no such value")
        return text

    return parse


KERNEL_CACHE_FOLDER = "~/.cache/torch-loom/kernels"
COMPILE_CACHE_FOLDER = "~/.cache/torch-loom/compiled"


def parse_folder(text: str) -> str:
    if "\0" in text:
        raise ValueError("not a path")
    # Absolute: the loader looks for a bare name in the system's folders.
    return os.path.abspath(os.path.expanduser(text or KERNEL_CACHE_FOLDER))


def parse_seconds(text: str) -> float:
    seconds = float(text)
    if not 0 <= seconds < 1e9:
        raise ValueError("not a number of seconds")
    return seconds


def parse_microseconds(text: str) -> float:
    microseconds = float(text)
    if not 0 <= microseconds <= 1e6:
        raise ValueError("not so many microseconds")
    return microseconds


def parse_place(text: str) -> str:
    if "\0" in text or not text:
        raise ValueError("not a path")
    return os.path.abspath(os.path.expanduser(text))


def parse_compile_cache(text: str) -> str | None:
    return None if text == "off" else parse_folder(text or COMPILE_CACHE_FOLDER)


def parse_driver(text: str) -> str:
    if "/" not in text:
        return one_of("virtual", "null")(text)
    if "\0" in text:
        raise ValueError("not a path")
    return os.path.abspath(os.path.expanduser(text))


def parse_flag(text: str) -> bool:
    if text not in ("0", "1"):
        raise ValueError("neither 0 nor 1")
    return text == "1"


def parse_seed(text: str) -> int:
    if re.fullmatch(r"[0-9]{1,20}", text.strip()) is None or int(text) > MAX_SEED:
        raise ValueError("not a seed")
    return int(text)


def parse_chip(text: str) -> str:
    """Return the name or path of one chip.

    Raises:
        ValueError: it can be neither. Whether there is such a chip is seen when its description is read.
    """
    if not text.strip() or "\0" in text:
        raise ValueError("neither a name nor a path")
    return text


def parse_chips(text: str) -> tuple[str, ...]:
    return parse_list(text, parse_chip)


def parse_cuda_devices(text: str) -> tuple[int, ...]:
    # CUDA's rule: what stands before the first entry that is no index counts; one twice means none.
    indices: list[int] = []
    for part in text.split(","):
        if re.fullmatch(r"\s*[0-9]{1,9}\s*", part) is None:
            break
        if int(part) in indices:
            return ()
        indices.append(int(part))
    return tuple(indices)


def parse_cuda_flag(text: str) -> bool:
    # CUDA takes any text but 0 for yes.
    return text.strip() not in ("", "0")


NO_CUDA_VERSION = "none"


def parse_cuda_version(text: str) -> str:
    if text != NO_CUDA_VERSION and re.fullmatch(r"[0-9]{1,3}\.[0-9]{1,3}", text) is None:
        raise ValueError("not a version")
    return text


def parse_machine(text: str) -> str:
    # Part of a file's name.
    if re.fullmatch(r"[A-Za-z0-9_]{1,64}", text) is None:
        raise ValueError("not a name")
    return text


def parse_device_name(text: str) -> str:
    # c10::Device reads only letters and underscores as the type of a device string.
    if re.fullmatch(r"[A-Za-z_]+", text) is None:
        raise ValueError("not a device name")
    if text not in DEVICE_NAMES and text.lower() in DEVICE_NAMES:
        raise ValueError(f"write it in lower case, {text.lower()}")
    return text
