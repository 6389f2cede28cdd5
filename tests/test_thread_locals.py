"""The extension's thread-local variables fit into the room that a loader keeps for libraries of its kind.

Those of the path of every op are found without a call (`csrc/util/thread_local.h`), for which all of them
must lie in that room: 1,664 bytes with glibc, for all libraries of the process. Without enough of it the
extension cannot be loaded.
"""

from __future__ import annotations

import struct
from pathlib import Path

from torch_loom import _C

MAX_BYTES = 640
PT_TLS = 7
STATIC_TLS = 0x10  # in DT_FLAGS
PT_DYNAMIC, DT_FLAGS = 2, 30


def segments(library: bytes) -> list[tuple[int, int, int, int]]:
    """Return type, place in the file, and sizes in file and memory of an ELF library's segments."""
    (table,) = struct.unpack_from("<Q", library, 0x20)
    entry_bytes, count = struct.unpack_from("<HH", library, 0x36)
    found = []
    for number in range(count):
        kind, _, offset, _, _, file_bytes, memory_bytes, _ = struct.unpack_from(
            "<IIQQQQQQ", library, table + number * entry_bytes
        )
        found.append((kind, offset, file_bytes, memory_bytes))
    return found


def test_the_extension_leaves_room_for_other_libraries() -> None:
    library = Path(_C.__file__).read_bytes()
    sizes = [memory_bytes for kind, _, _, memory_bytes in segments(library) if kind == PT_TLS]
    assert len(sizes) == 1
    assert 0 < sizes[0] <= MAX_BYTES, "hang what is large on a pointer"


def test_hot_variables_are_found_without_a_call() -> None:
    library = Path(_C.__file__).read_bytes()
    ((offset, file_bytes),) = [
        (offset, file_bytes) for kind, offset, file_bytes, _ in segments(library) if kind == PT_DYNAMIC
    ]
    entries = struct.iter_unpack("<QQ", library[offset : offset + file_bytes // 16 * 16])
    flags = [value for tag, value in entries if tag == DT_FLAGS]
    assert len(flags) == 1
    assert flags[0] & STATIC_TLS
