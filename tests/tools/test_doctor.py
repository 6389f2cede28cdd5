"""`loom doctor`: what it finds, and that what is wrong has a remedy and an exit status."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from torch_loom.tools import doctor, library_choices


def answered(returncode: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], returncode, stdout, stderr)


HERE = json.dumps([str(torch.__version__), torch.__file__, torch.version.cuda])


def test_all_is_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    devices = json.dumps([["NVIDIA H200", 140 * 2**30]])

    def answer(
        arguments: list[str], environment: dict[str, str] | None = None
    ) -> subprocess.CompletedProcess[str]:
        return answered(0, devices if "device_count" in arguments[-1] else HERE)

    monkeypatch.setattr(doctor, "_start", answer)
    doctor.run(is_json=True, asks_libraries=False)
    found = {row["what"]: row for row in json.loads(capsys.readouterr().out)}
    assert list(found) == [
        *("Python", "torch-loom", "torch", "extension", "devices loom"),
        "devices cuda, under `loom run`",
    ]
    assert str(torch.__version__).split("+")[0] in found["torch"]["says"]
    assert found["devices loom"]["says"] == "1: NVIDIA H200 (140 GiB)"
    assert not any(one["remedy"] for one in found.values())


def test_what_is_wrong_has_a_remedy(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    said = "first\nthe extension is damaged. Install it again: `pip install X`.\n"
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answered(1, HERE, said))
    with pytest.raises(SystemExit) as ended:
        doctor.run(asks_libraries=True)
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert "`pip install X`" in out
    assert "mend the first line in red" in out


def test_a_process_that_dies_is_told_by_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answered(-11, HERE))
    _, extension = doctor._torch_and_extension()
    assert (extension.says, extension.remedy) == ("does not fit", "ended by signal 11")


@pytest.mark.parametrize(
    ("said", "says", "remedy"),
    [
        ("ModuleNotFoundError: No module named 'torch'\n", "is not installed", "pip install torch"),
        ("OSError: libgomp is lost\n", "cannot be imported", "OSError: libgomp is lost"),
    ],
)
def test_a_torch_that_cannot_be_imported(
    monkeypatch: pytest.MonkeyPatch, said: str, says: str, remedy: str
) -> None:
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answered(1, stderr=said))
    (found,) = doctor._torch_and_extension()
    assert (found.says, found.remedy) == (says, remedy)


def install(folder: Path, version: str, *, has_files: bool = True) -> None:
    """What pip leaves of a torch."""
    info = folder / f"torch-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: torch\nVersion: {version}\n")
    if has_files:
        (folder / "torch").mkdir()
        (folder / "torch" / "__init__.py").write_text(f"__version__ = '{version}'\n")


def torch_in(folder: Path, version: str) -> str:
    return json.dumps([version, str(folder / "torch" / "__init__.py"), "13.0"])


@pytest.mark.parametrize("has_two_folders", [False, True])
def test_two_torches_are_told_apart(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, has_two_folders: bool
) -> None:
    first, second = tmp_path / "first", tmp_path / ("second" if has_two_folders else "first")
    install(first, "2.14.1+cu130")
    install(second, "2.13.0+cpu", has_files=has_two_folders)
    monkeypatch.setattr(sys, "path", [str(first), str(second)])
    answer = answered(0, torch_in(first, "2.14.1+cu130"))
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answer)
    found, _ = doctor._torch_and_extension()
    # What runs, not what pip finds first.
    assert found.says.startswith("2.14.1+cu130, a build for CUDA 13.0, whose kernels")
    assert str(first / "torch") in found.says
    assert found.remedy.startswith("There is more than one torch: ")
    assert found.remedy.count("noted by pip") == 2
    assert found.remedy.count("the files in") == 1 + has_two_folders
    assert f"2.13.0+cpu noted by pip in {second}" in found.remedy
    assert f"2.14.1+cu130 in {first / 'torch'} runs" in found.remedy
    assert "`pip uninstall torch` until none is left" in found.remedy


def test_a_folder_that_is_named_twice_is_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    install(tmp_path / "site", "2.14.1")
    monkeypatch.setattr(sys, "path", [str(tmp_path / "site"), str(tmp_path / "other" / ".." / "site")])
    (tmp_path / "other").mkdir()
    answer = answered(0, torch_in(tmp_path / "site", "2.14.1+cu130"))
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answer)
    found, _ = doctor._torch_and_extension()
    assert found.remedy == ""


def test_libraries_are_asked_one_by_one(monkeypatch: pytest.MonkeyPatch) -> None:
    def fail() -> str:
        raise OSError("no such thing")

    monkeypatch.setattr(
        library_choices, "QUESTIONS", {"numpy": lambda: "this", "rich": fail, "not-a-distribution": fail}
    )
    found = library_choices.ask()
    assert found["numpy"]["choice"] == "this"
    assert found["rich"]["error"] == "OSError: no such thing"
    assert list(found) == ["numpy", "rich"]


@pytest.mark.slow
def test_this_installation_is_well() -> None:
    findings = list(doctor.findings(asks_libraries=False))
    assert [finding for finding in findings if finding.remedy] == []


def test_a_long_path_is_shown_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/home/somebody/" + "environments/" * 12 + "torch_loom"
    monkeypatch.setattr(doctor, "findings", lambda asks_libraries: [doctor.Finding("torch-loom", path)])
    doctor.run()
    assert path in "".join(capsys.readouterr().out.split())
