"""A package that does not fit its PyTorch, or is damaged, is as good as absent: and says what is wrong."""

from __future__ import annotations

import shutil
import subprocess
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom
from torch_loom import torch_version
from torch_loom._register import fitness

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "fitness"
PACKAGE = Path(torch_loom.__file__).parent
EXTENSION = f"_C{EXTENSION_SUFFIXES[0]}"
REPAIR = "pip install --force-reinstall --no-deps --no-build-isolation"
VERSION = str(torch.__version__)


def stamp(folder: Path, version: str = VERSION, *, of: Path | None = None) -> None:
    """Write what setup.py writes beside the extension."""
    content = (of or folder / EXTENSION).read_bytes()
    (folder / "_built_with.py").write_text(
        f'TORCH_VERSION = "{version}"\nEXTENSION_BYTES = {len(content)}\n'
        f"EXTENSION_CHECKSUM = {torch_version.checksum(content)}\n"
    )


@pytest.fixture
def package(tmp_path: Path) -> Path:
    """The package's folder in a place of its own, with an extension that may be changed."""
    folder = tmp_path / "site" / "torch_loom"
    folder.mkdir(parents=True)
    for part in PACKAGE.iterdir():
        if not part.name.startswith(("_C.", "_C_testing", "_built_with", "__pycache__")):
            (folder / part.name).symlink_to(part)
    shutil.copyfile(PACKAGE / EXTENSION, folder / EXTENSION)
    stamp(folder)
    return folder


def truncate(folder: Path) -> None:
    file = folder / EXTENSION
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])


def lose_a_page(folder: Path) -> None:
    content = bytearray((folder / EXTENSION).read_bytes())
    middle = len(content) // 2 // 4096 * 4096
    content[middle : middle + 4096] = bytes(4096)
    (folder / EXTENSION).write_bytes(content)


def link(folder: Path, *options: str) -> None:
    source = folder.parent / "extension.c"
    source.write_text("void lost_function(void);\nvoid* PyInit__C(void) { lost_function(); return 0; }\n")
    command = ["gcc", "-shared", "-fPIC", str(source), "-o", str(folder / EXTENSION), *options]
    subprocess.run(command, check=True)
    stamp(folder)


def lack_a_symbol(folder: Path) -> None:
    link(folder)


def lack_a_library(folder: Path) -> None:
    source, library = folder.parent / "lost.c", folder.parent / "liblost_library.so"
    source.write_text("void lost_function(void) {}\n")
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(library)], check=True)
    link(folder, f"-L{library.parent}", "-llost_library")
    library.unlink()


def be_text(folder: Path) -> None:
    (folder / EXTENSION).write_text("no library")
    stamp(folder)


def be_for_another_python(folder: Path) -> None:
    (folder / EXTENSION).rename(folder / "_C.cpython-39-x86_64-linux-gnu.so")


def be_for_another_minor(folder: Path) -> None:
    stamp(folder, "2.9.1+cpu")


def be_for_a_nightly_build(folder: Path) -> None:
    stamp(folder, f"{VERSION.split('+')[0]}.dev20260101")


def have_no_stamp(folder: Path) -> None:
    (folder / "_built_with.py").unlink()


def have_an_older_stamp(folder: Path) -> None:
    (folder / "_built_with.py").write_text(f'TORCH_VERSION = "{VERSION}"\n')


CASES: dict[Callable[[Path], None], tuple[str, tuple[str, ...]]] = {
    truncate: ("ExtensionError", ("is damaged", EXTENSION, REPAIR)),
    lose_a_page: ("ExtensionError", ("is damaged", EXTENSION, REPAIR)),
    be_text: ("ExtensionError", ("could not be loaded", VERSION, REPAIR)),
    lack_a_symbol: ("ExtensionError", ("could not be loaded", "lost_function", REPAIR)),
    lack_a_library: ("ExtensionError", ("could not be loaded", "liblost_library", REPAIR)),
    be_for_another_python: ("ExtensionError", ("no extension for this Python", "cpython-39", REPAIR)),
    be_for_another_minor: ("VersionMismatchError", ("2.9.1+cpu", VERSION, REPAIR)),
    be_for_a_nightly_build: ("VersionMismatchError", (".dev20260101", VERSION, REPAIR)),
    have_an_older_stamp: ("ExtensionError", ("_built_with.py", REPAIR)),
    have_no_stamp: ("ExtensionError", ("_built_with.py", REPAIR)),
}


@pytest.mark.parametrize("change", CASES, ids=lambda change: change.__name__)
def test_each_use_raises_what_is_wrong(
    fork_python: PythonRunner, package: Path, change: Callable[[Path], None]
) -> None:
    change(package)
    kind, words = CASES[change]
    program = PROGRAMS / "each_use_raises_what_is_wrong.py"
    fork_python(program, given=(str(package.parent), kind, words))


def test_a_copy_that_fits_is_loaded(fork_python: PythonRunner, package: Path) -> None:
    """The cases above would pass for any copy otherwise."""
    program = PROGRAMS / "each_use_raises_what_is_wrong.py"
    done = fork_python(program, given=(str(package.parent), "", ()), check=False)
    assert "assert [str(one.message)" in done.stderr


def have_folders(folder: Path, *versions: str) -> None:
    """Move the extension to folders of several versions, as in a wheel for these."""
    for version in versions:
        target = folder / "extensions" / f"torch{version.rsplit('.', 1)[0]}"
        target.mkdir(parents=True)
        shutil.copyfile(folder / EXTENSION, target / EXTENSION)
        stamp(target, version)
    (folder / EXTENSION).unlink()
    (folder / "_built_with.py").unlink()


@pytest.mark.long
def test_the_extension_of_the_running_version_is_loaded(fork_python: PythonRunner, package: Path) -> None:
    running = VERSION.split("+")[0]
    have_folders(package, "2.9.1", running, "2.99.0")
    file = package / "extensions" / f"torch{running.rsplit('.', 1)[0]}" / EXTENSION
    fork_python(PROGRAMS / "the_extension_of_a_folder.py", given=(str(package.parent), str(file)))


def test_none_of_several_versions_runs(fork_python: PythonRunner, package: Path) -> None:
    have_folders(package, "2.8.1", "2.9.1+cpu")
    words = ("2 versions of torch, the newest 2.9.1+cpu", "install torch 2.8 or 2.9", REPAIR)
    program = PROGRAMS / "each_use_raises_what_is_wrong.py"
    fork_python(program, given=(str(package.parent), "VersionMismatchError", words))


@pytest.mark.parametrize("name", ["torch_loom.device", "torch_loom._register.entries"])
def test_a_failure_after_loading_is_raised(fork_python: PythonRunner, name: str) -> None:
    fork_python(PROGRAMS / "a_failure_after_loading_is_raised.py", given=name)


@pytest.mark.slow
@pytest.mark.parametrize(
    "change", [truncate, lack_a_symbol, be_for_another_minor], ids=lambda one: one.__name__
)
@pytest.mark.parametrize("flags", [(), ("-W", "error")])
def test_import_torch_goes_on(
    run_python: PythonRunner, package: Path, change: Callable[[Path], None], flags: tuple[str, ...]
) -> None:
    change(package)
    done = run_python(PROGRAMS / "import_torch_goes_on.py", {"PYTHONPATH": str(package.parent)}, flags=flags)
    assert done.stdout == "done\n"
    assert done.stderr.count("torch-loom is not available") == 1
    assert REPAIR in done.stderr


def test_the_repair_names_where_the_package_came_from(monkeypatch: pytest.MonkeyPatch) -> None:
    assert fitness.repair() == f"{REPAIR} --editable {PACKAGE.parent}"
    monkeypatch.setattr(fitness, "_is_checkout", lambda: False)

    class Installed:
        url: str | None

        def read_text(self, name: str) -> str | None:
            assert name == "direct_url.json"
            return self.url

    installed = Installed()
    monkeypatch.setattr(fitness, "distribution", lambda name: installed)
    installed.url = '{"dir_info": {}, "url": "file:///home/me/my%20checkout"}'
    assert fitness.repair() == f"{REPAIR} '/home/me/my checkout'"
    for url in (None, '{"archive_info": {}, "url": "https://example.org/torch_loom.whl"}'):
        installed.url = url
        assert fitness.repair() == f"{REPAIR} --no-cache-dir torch-loom"
