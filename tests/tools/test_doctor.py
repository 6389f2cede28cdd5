"""`loom doctor`: what it finds, and that what is wrong has a remedy and an exit status."""

from __future__ import annotations

import json
import subprocess

import pytest
import torch

from torch_loom.tools import doctor, library_choices


def answered(returncode: int, stdout: str = "", stderr: str = "") -> subprocess.CompletedProcess[str]:
    return subprocess.CompletedProcess([], returncode, stdout, stderr)


def test_all_is_well(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    devices = json.dumps([["NVIDIA H200", 140 * 2**30]])
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answered(0, devices))
    doctor.run(is_json=True, asks_libraries=False)
    found = {one["what"]: one for one in json.loads(capsys.readouterr().out)}
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
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answered(1, stderr=said))
    with pytest.raises(SystemExit) as ended:
        doctor.run(asks_libraries=True)
    assert ended.value.code == 1
    out = capsys.readouterr().out
    assert "does not fit" in out
    assert "`pip install X`" in out
    assert "mend the first line in red" in out


def test_a_process_that_dies_is_told_by_its_signal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "_start", lambda arguments, environment=None: answered(-11))
    assert doctor._extension().remedy == "ended by signal 11"


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
    assert [one for one in findings if one.remedy] == []


def test_a_long_path_is_shown_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    path = "/home/somebody/" + "environments/" * 12 + "torch_loom"
    monkeypatch.setattr(doctor, "findings", lambda asks_libraries: [doctor.Finding("torch-loom", path)])
    doctor.run()
    assert path in "".join(capsys.readouterr().out.split())
