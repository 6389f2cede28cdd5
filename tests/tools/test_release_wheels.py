"""One wheel out of wheels for one version of PyTorch each."""

from __future__ import annotations

import hashlib
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tools import release
from torch_loom import torch_version

SUFFIX = f"cpython-{sys.version_info[0]}{sys.version_info[1]}-x86_64-linux-gnu.so"
TAG = f"cp{sys.version_info[0]}{sys.version_info[1]}"
NAME = f"torch_loom-0.1.0-{TAG}-{TAG}-linux_x86_64.whl"


def make_wheel(folder: Path, version: str, *, text: str = "value = 1\n", library: str = "") -> Path:
    """A wheel as setuptools makes them, with an extension of one function."""
    files = folder / "files"
    package, info = files / "torch_loom", files / "torch_loom-0.1.0.dist-info"
    for each in (package, info):
        each.mkdir(parents=True)
    source = folder / "extension.c"
    # Each version's is another file.
    source.write_text(f"int of_version_{version.replace('.', '_').replace('+', '_')}(void) {{ return 1; }}\n")
    extension = package / f"_C.{SUFFIX}"
    options = ["-g", *([f"-L{folder}", f"-l{library}", "-Wl,--no-as-needed"] if library else [])]
    subprocess.run(["gcc", "-shared", "-fPIC", str(source), "-o", str(extension), *options], check=True)
    record = torch_version.record(version, extension.read_bytes())
    (package / "_built_with.py").write_text(record)
    (package / "__init__.py").write_text(text)
    (info / "METADATA").write_text("Metadata-Version: 2.1\nName: torch-loom\nVersion: 0.1.0\n")
    (info / "WHEEL").write_text(
        f"Wheel-Version: 1.0\nRoot-Is-Purelib: false\nTag: {TAG}-{TAG}-linux_x86_64\n"
    )
    (info / "RECORD").write_text("")
    return release.packed(files, folder / "wheel")


@pytest.fixture
def wheels(tmp_path: Path) -> list[Path]:
    found = []
    for version in ("2.13.0+cpu", "2.14.1+cu130"):
        folder = tmp_path / version
        folder.mkdir()
        found.append(make_wheel(folder, version))
    return found


@pytest.mark.slow
def test_a_wheel_for_two_versions(wheels: list[Path], tmp_path: Path) -> None:
    assert [wheel.name for wheel in wheels] == [NAME, NAME]
    made = release.join(wheels, tmp_path / "dist")
    assert "manylinux" in made.name
    with zipfile.ZipFile(made) as opened:
        names = opened.namelist()
        assert not any(name.startswith("torch_loom/_C") for name in names)
        assert "torch_loom/_built_with.py" not in names
        for minor, version in (("2.13", "2.13.0+cpu"), ("2.14", "2.14.1+cu130")):
            folder = f"torch_loom/extensions/torch{minor}"
            content = opened.read(f"{folder}/_C.{SUFFIX}")
            assert f"of_version_{version.replace('.', '_').replace('+', '_')}".encode() in content
            found: dict[str, object] = {}
            exec(opened.read(f"{folder}/_built_with.py"), found)
            assert found["TORCH_VERSION"] == version
            # Symbols of debuggers are gone, and the record is of what is in the wheel.
            assert found["EXTENSION_BYTES"] == len(content)
            assert found["EXTENSION_CHECKSUM"] == torch_version.checksum(content)
    sums = release.write_sums(tmp_path / "dist")
    assert sums.read_text() == f"{hashlib.sha256(made.read_bytes()).hexdigest()}  {made.name}\n"


@pytest.mark.long
def test_wheels_of_the_same_minor(wheels: list[Path], tmp_path: Path) -> None:
    with pytest.raises(release.ReleaseError, match=r"is for torch 2\.13, as is another"):
        release.join([wheels[0], wheels[0]], tmp_path / "dist")
    assert not (tmp_path / "dist").exists()


@pytest.mark.long
def test_wheels_of_other_sources(wheels: list[Path], tmp_path: Path) -> None:
    (tmp_path / "other").mkdir()
    other = make_wheel(tmp_path / "other", "2.14.1+cu130", text="value = 2\n")
    with pytest.raises(release.ReleaseError, match=r"differs from .* in torch_loom/__init__\.py"):
        release.join([wheels[0], other], tmp_path / "dist")


def test_wheels_of_other_names(wheels: list[Path], tmp_path: Path) -> None:
    renamed = wheels[1].rename(wheels[1].with_name("torch_loom-0.2.0-cp311-cp311-linux_x86_64.whl"))
    with pytest.raises(release.ReleaseError, match="have one name"):
        release.join([wheels[0], renamed], tmp_path / "dist")


def test_no_wheel(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    broken = tmp_path / NAME
    broken.write_bytes(b"no archive")
    assert release.main([str(broken), "--out", str(tmp_path / "dist")]) == 1
    assert "failed" in capsys.readouterr().err
