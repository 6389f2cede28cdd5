"""Functions of the device that stay those of their source file where several are linked.

Each source has indices of threads of its own, which the compiler may keep in registers. A template or an
inline function that is not inlined would be one function of all sources that use it, and read the indices of
the first. On a GPU the code of the device belongs to its source anyhow.
"""

from __future__ import annotations

import re
import subprocess
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

# What include/loom_cuda/threads.h and shared_addresses.h keep for each source.
_OWN = re.compile(
    r"_ZL\d+(?:threadIdx|blockIdx|blockDim|gridDim)|"
    r"_ZN9loom_cudaL\d+(?:runner|has_waited|high_bits|has_high_bits)E"
)
_CALLS = ("PLT32", "CALL26", "JUMP26")
# Called before accesses and where ints overflow, by code of the host as well; each source has its own.
_CHECKS = ("__asan_", "__tsan_", "__ubsan_")
TOOLS = ("readelf", "ld", "objcopy")


def keep_own_functions(path: Path) -> None:
    """Make local to an object file what functions of it touch the indices of threads, and what calls them.

    Code of the host takes the addresses of kernels and does not call them, so that it stays as it is.

    Raises:
        FileNotFoundError: there is no :data:`TOOLS`, which binutils has.
        subprocess.CalledProcessError: one of them fails.
    """
    names = sorted(_shared_functions(path))
    if not names:
        return
    listed, grouped = path.with_suffix(".symbols"), path.with_suffix(".grouped")
    try:
        listed.write_text("\n".join(names) + "\n", encoding="utf-8")
        # Of a group, whose functions several files have, the linker takes the first file's.
        _output("ld", "-r", "--force-group-allocation", str(path), "-o", str(grouped))
        _output("objcopy", f"--localize-symbols={listed}", str(grouped))
        grouped.replace(path)
    finally:
        listed.unlink(missing_ok=True)
        grouped.unlink(missing_ok=True)


def _shared_functions(path: Path) -> set[str]:
    """Return the names of functions that other files may have, too, and that must be this file's."""
    sections = _section_names(path)
    functions: dict[str, set[str]] = defaultdict(set)  # by section
    section_of: dict[str, str] = {}
    for index, kind, binding, name in _symbols(path):
        section = sections.get(index, "")
        if not section.startswith(".text"):
            continue
        section_of.setdefault(section if kind == "SECTION" else name, section)
        if kind == "FUNC" and binding == "WEAK":
            functions[section].add(name)
    callers: dict[str, set[str]] = defaultdict(set)
    waiting: list[str] = []
    for section, relocation, name in _relocations(path):
        if _OWN.fullmatch(name):
            waiting.append(section)
        elif relocation.endswith(_CALLS) and not name.startswith(_CHECKS) and name in section_of:
            callers[section_of[name]].add(section)
    found = set(waiting)
    while waiting:
        new = callers[waiting.pop()] - found
        found |= new
        waiting.extend(new)
    checks = {name for names in functions.values() for name in names if name.startswith(_CHECKS)}
    return checks.union(*(functions[section] for section in found))


def _section_names(path: Path) -> dict[str, str]:
    lines = _output("readelf", "-SW", str(path)).splitlines()
    parts = (re.match(r"\s*\[\s*(\d+)\]\s+(\S+)", line) for line in lines)
    return {found[1]: found[2] for found in parts if found is not None}


def _symbols(path: Path) -> Iterator[tuple[str, str, str, str]]:
    """Yield section, kind, binding and name of each symbol that is defined."""
    for line in _output("readelf", "-sW", str(path)).splitlines():
        words = line.split()
        if len(words) >= 8 and words[6].isdecimal():
            yield words[6], words[3], words[4], words[7]


def _relocations(path: Path) -> Iterator[tuple[str, str, str]]:
    """Yield of code its section, and the kind and the symbol of each relocation."""
    section = ""
    for line in _output("readelf", "-rW", str(path)).splitlines():
        words = line.split()
        if line.startswith("Relocation section"):
            section = words[2].strip("'").removeprefix(".rela").removeprefix(".rel")
        elif section.startswith(".text") and len(words) >= 5:
            yield section, words[2], words[4]


def _output(*command: str) -> str:
    done = subprocess.run(command, check=True, capture_output=True, text=True, errors="replace")
    return done.stdout
