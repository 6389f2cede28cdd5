"""A package that does not fit its PyTorch, or is damaged, is as good as absent: and says what is wrong."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Callable
from importlib.machinery import EXTENSION_SUFFIXES
from importlib.metadata import PackagePath, PathDistribution
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import torch

import torch_loom
from torch_loom import torch_version
from torch_loom._register import fitness, origin
from torch_loom.errors import ExtensionError, VersionMismatchError

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "fitness"
PACKAGE = Path(torch_loom.__file__).parent
ROOT = Path(__file__).parents[2]
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


def be_empty(folder: Path) -> None:
    (folder / EXTENSION).write_bytes(b"")
    stamp(folder)


def have_a_pipe_as_stamp(folder: Path) -> None:
    (folder / "_built_with.py").unlink()
    os.mkfifo(folder / "_built_with.py")


def _record(text: str, name: str) -> Callable[[Path], None]:
    def have_a_bad_stamp(folder: Path) -> None:
        (folder / "_built_with.py").write_bytes(text.encode("latin-1"))

    have_a_bad_stamp.__name__ = f"have_a_stamp_{name}"
    return have_a_bad_stamp


_WHOLE = f'TORCH_VERSION = "{VERSION}"\nEXTENSION_BYTES = {{}}\nEXTENSION_CHECKSUM = 1\n'
BAD_STAMPS = [
    _record("\0\xff\xfe garbage", "of_garbage"),
    _record("1/0\n", "that_divides"),
    _record("import sys\nsys.exit(3)\n", "that_exits"),
    _record(_WHOLE.format('"x"'), "of_text"),
    _record(_WHOLE.format("True"), "of_truth"),
    _record(_WHOLE.format("7").replace(VERSION, "garbage"), "of_no_version"),
    _record("# " + "x" * 5000 + "\n" + _WHOLE.format("7"), "that_is_long"),
    _record("A = " + "(" * 3000, "that_is_deep"),
]


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
    have_a_pipe_as_stamp: ("ExtensionError", ("_built_with.py", REPAIR)),
    be_empty: ("ExtensionError", ("is damaged", "(0 bytes, of 0)", REPAIR)),
    **dict.fromkeys(BAD_STAMPS, ("ExtensionError", ("_built_with.py", REPAIR))),
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


def install_entry_point(package: Path) -> None:
    """What pip puts beside the package: the entry point's module and its name."""
    for name in ("torch_loom_autoload.py", "torch_loom_pytest.py"):
        shutil.copy(ROOT / name, package.parent)
    text = (ROOT / "pyproject.toml").read_text(encoding="utf-8")
    found = re.search(r'(?m)^\[project\.entry-points\."torch\.backends"\]\n((?:.+\n)+)', text)
    assert found is not None
    info = package.parent / "torch_loom-0.1.0.dist-info"
    info.mkdir()
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-loom\nVersion: 0.1.0\n")
    (info / "entry_points.txt").write_text("[torch.backends]\n" + found[1].replace('"', ""))


def own(package: Path, name: str) -> Path:
    """Return a file of the package, now a copy of its own that may be changed."""
    top = package / name.split("/")[0]
    source = top.resolve()
    top.unlink()
    if source.is_dir():
        shutil.copytree(source, top)
    else:
        shutil.copyfile(source, top)
    return package / name


def end_early(package: Path) -> None:
    file = own(package, "__init__.py")
    file.write_text(file.read_text().partition("_failure = register()")[0])


def lack_the_settings(package: Path) -> None:
    own(package, "config/settings.py").unlink()


def have_damaged_errors(package: Path) -> None:
    own(package, "errors.py").write_bytes(b"\0\0 class")


def have_a_file_that_exits(package: Path) -> None:
    own(package, "errors.py").write_text("raise SystemExit(3)\n")


def have_damaged_names(package: Path) -> None:
    own(package, "compat/libraries/__init__.py").write_text("1 / 0\n")


def be_gone(package: Path) -> None:
    shutil.rmtree(package)


DAMAGE: dict[Callable[[Path], None], str] = {
    end_early: "SyntaxError",
    lack_the_settings: "torch_loom.config.settings",
    have_damaged_errors: "null bytes",
    have_a_file_that_exits: "SystemExit(3)",
    have_damaged_names: "ZeroDivisionError",
    be_gone: "torch_loom",
}


@pytest.mark.parametrize("change", DAMAGE, ids=lambda change: change.__name__)
def test_damage_of_the_package_leaves_torch_as_it_is(
    fork_python: PythonRunner, package: Path, change: Callable[[Path], None]
) -> None:
    install_entry_point(package)
    change(package)
    words = ("torch-loom is not available: ", DAMAGE[change], REPAIR)
    has_devices = change is have_damaged_names  # which are registered before
    program = PROGRAMS / "damage_leaves_torch_as_it_is.py"
    fork_python(program, given=(str(package.parent), words, package.exists(), has_devices))


@pytest.mark.long
@pytest.mark.parametrize("change", [have_damaged_errors, end_early], ids=lambda change: change.__name__)
def test_damage_ends_a_program_that_needs_the_devices(
    run_python: PythonRunner, package: Path, change: Callable[[Path], None]
) -> None:
    """As `loom run` starts one; and the command, and the plugin of pytest, say what is wrong."""
    install_entry_point(package)
    change(package)
    paths = {"PYTHONPATH": str(package.parent)}
    program = PROGRAMS / "needs_the_devices.py"
    done = run_python(program, {**paths, "TORCH_LOOM_REQUIRED": "1"}, check=False)
    assert (done.returncode, done.stdout) == (1, ""), done
    assert "torch-loom is not available" in done.stderr
    assert "the program was started with the devices of torch-loom" in done.stderr
    done = run_python(program, paths)
    assert done.stdout == "goes on\n"
    done = run_python(PROGRAMS / "entry_points_of_a_damaged_package.py", paths)
    assert done.stdout == "goes on\n", done
    assert f"Install it again: `{REPAIR}" in done.stderr


def test_one_text_of_the_repair_that_needs_no_import() -> None:
    for file in (PACKAGE / "__init__.py", ROOT / "torch_loom_autoload.py"):
        assert f'"{REPAIR} --no-cache-dir torch-loom"' in file.read_text(encoding="utf-8")


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


@pytest.mark.parametrize(
    "name", ["torch_loom.device", "torch_loom._register.entries", "torch_loom.distributed"]
)
def test_a_failure_after_loading_is_raised(fork_python: PythonRunner, name: str) -> None:
    fork_python(PROGRAMS / "a_failure_after_loading_is_raised.py", given=name)


def test_an_interruption_is_not_repeated(fork_python: PythonRunner) -> None:
    fork_python(PROGRAMS / "an_interruption_is_not_repeated.py")


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


@pytest.mark.slow
@pytest.mark.parametrize("change", [end_early, have_damaged_errors], ids=lambda one: one.__name__)
def test_import_torch_goes_on_with_a_damaged_package(
    run_python: PythonRunner, package: Path, change: Callable[[Path], None]
) -> None:
    install_entry_point(package)
    change(package)
    done = run_python(PROGRAMS / "import_torch_goes_on.py", {"PYTHONPATH": str(package.parent)})
    assert done.stdout == "done\n"
    assert done.stderr.count("torch-loom is not available") == 1
    assert REPAIR in done.stderr


class Installed:
    """What pip notes of an installation."""

    url: str | None = None
    files: list[PackagePath] | None = None

    def read_text(self, name: str) -> str | None:
        assert name == "direct_url.json"
        return self.url


@pytest.fixture
def installed(monkeypatch: pytest.MonkeyPatch) -> Installed:
    """The package is not a checkout's, but an installed one."""
    made = Installed()
    monkeypatch.setattr(origin, "is_checkout", lambda: False)
    monkeypatch.setattr(origin, "distribution", lambda name: made)
    return made


def test_files_that_are_gone_or_empty_are_named(
    installed: Installed, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What was changed, what was empty from the start and byte code are not: that is no damage."""
    (tmp_path / "torch_loom").mkdir()
    for name, content in {"gone": None, "empty": "", "changed": "x", "py.typed": ""}.items():
        if content is not None:
            (tmp_path / "torch_loom" / name).write_text(content)
    sizes = {"gone": 7, "empty": 7, "changed": 7, "py.typed": 0, "__pycache__/gone.pyc": 7, "other": 7}
    installed.files = [PackagePath("" if name == "other" else "torch_loom", name) for name in sizes]
    for noted, size in zip(installed.files, sizes.values(), strict=True):
        noted.size, noted.dist = size, PathDistribution(tmp_path / "torch_loom-1.dist-info")
    monkeypatch.setattr(origin, "_PACKAGE", tmp_path / "torch_loom")
    folder = tmp_path / "torch_loom"
    assert sorted(origin.lost_files()) == [folder / "empty", folder / "gone"]
    with pytest.raises(ExtensionError, match=rf"{folder}/gone and 1 more are missing or empty\. .*`pip "):
        fitness.check_installed()
    installed.files = installed.files[2:]
    fitness.check_installed()


def test_a_checkout_repairs_itself() -> None:
    assert fitness.repair() == f"{REPAIR} --editable {PACKAGE.parent}"


@pytest.mark.parametrize(
    ("noted", "source"),
    [
        ('{"dir_info": {}, "url": "file:///home/me/my%20checkout"}', "'/home/me/my checkout'"),
        ('{"dir_info": {"editable": true}, "url": "file:///src"}', "--editable /src"),
        (None, "--no-cache-dir torch-loom"),
        ("no JSON", "--no-cache-dir torch-loom"),
        ('["a list"]', "--no-cache-dir torch-loom"),
        (
            '{"archive_info": {}, "url": "https://example.org/torch_loom-0.1.0-cp311-cp311-linux_x86_64.whl"}',
            "--no-cache-dir https://example.org/torch_loom-0.1.0-cp311-cp311-linux_x86_64.whl",
        ),
        (
            '{"vcs_info": {"vcs": "git", "commit_id": "0a1b"}, "url": "https://example.org/torch-loom"}',
            "--no-cache-dir git+https://example.org/torch-loom@0a1b",
        ),
    ],
)
def test_the_repair_names_where_the_package_came_from(
    installed: Installed, noted: str | None, source: str
) -> None:
    installed.url = noted
    assert fitness.repair() == f"{REPAIR} {source}"


def test_a_wheel_that_does_not_fit_says_what_it_fits(
    installed: Installed, package: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To install the same wheel again would change nothing."""
    have_folders(package, "2.8.1", "2.9.1+cpu")
    monkeypatch.setattr(fitness, "_PACKAGE", package)
    monkeypatch.setattr(fitness, "_FOLDERS", package / "extensions")
    installed.url = (
        '{"archive_info": {}, "url": "file:///dist/torch_loom-0.1.0-cp311-cp311-linux_x86_64.whl"}'
    )
    with pytest.raises(VersionMismatchError) as raised:
        fitness.check(torch)
    said = str(raised.value)
    assert "The wheel that is installed fits torch 2.8 or 2.9: install torch 2.8 or 2.9, a wheel for" in said
    assert f"`{REPAIR} CHECKOUT`" in said
    assert "torch_loom-0.1.0" not in said
