"""Devices of different chips in one program: each has its own capacity, policy, figures and fallbacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_loom import config
from torch_loom.errors import ConfigurationError

PROGRAMS = Path(__file__).parent / "programs" / "mixed_chips"

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

MIXED = {"TORCH_LOOM_CHIP": "h200,loom1,atom"}


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch) -> pytest.MonkeyPatch:
    """No setting but those that the test makes."""
    for setting in config.SETTINGS:
        monkeypatch.delenv(setting.env, raising=False)
    monkeypatch.setattr(config, "_overrides", {})
    monkeypatch.setattr(config, "_frozen", False)
    return monkeypatch


def test_a_list_says_how_many_devices_there_are(settings: pytest.MonkeyPatch) -> None:
    settings.setenv("TORCH_LOOM_CHIP", "h200, h200,atom")
    resolved = config.resolve()
    assert resolved.chips == ("h200", "h200", "atom")
    settings.setenv("TORCH_LOOM_DEVICES", "3")
    settings.setenv("TORCH_LOOM_VISIBLE_DEVICES", "2,0")
    resolved = config.resolve()
    assert [resolved.chips[physical] for physical in resolved.physical_devices] == ["atom", "h200"]
    assert resolved.chip == "atom"


@pytest.mark.parametrize(
    ("env", "text"),
    [
        ({"CHIP": "h200,atom", "DEVICES": "3"}, "2 in the list, but TORCH_LOOM_DEVICES='3'"),
        ({"MEMORY": "1GiB,2GiB", "DEVICES": "1"}, "2 in the list, but TORCH_LOOM_DEVICES='1'"),
        ({"CHIP": "h200,atom", "MEMORY": "1GiB,1GiB,1GiB"}, "3 in the list, but TORCH_LOOM_CHIP"),
        ({"CHIP": "h200,,atom"}, "neither a name nor a path"),
        ({"MEMORY": "1GiB,1"}, "out of range"),
        ({"CHIP": ",".join(["atom"] * 65)}, "too many"),
    ],
)  # fmt: skip
def test_lists_that_contradict_are_refused(
    settings: pytest.MonkeyPatch, env: dict[str, str], text: str
) -> None:
    for name, value in env.items():
        settings.setenv(f"TORCH_LOOM_{name}", value)
    with pytest.raises(ConfigurationError, match=text):
        config.resolve()


def test_configure_takes_lists(settings: pytest.MonkeyPatch, tmp_path: Path) -> None:
    config.configure(chips=["h200", tmp_path / "own.toml"], memory=[1 << 30, "2GiB"])
    resolved = config.resolve()
    assert resolved.chips == ("h200", str(tmp_path / "own.toml"))
    assert resolved.memories == (1 << 30, 2 << 30)
    assert resolved.devices == 2
    for bad, text in (
        ({"chips": "h200"}, "chips is a list"),
        ({"chips": []}, "at least one"),
        ({"chips": ["a,b.toml"]}, "comma"),
        ({"chips": ["h200"], "chip": "h200"}, "give one of the two"),
        ({"chips": ["h200", "atom"], "devices": 3}, "2 in the list"),
        ({"chips": ["h200", 3.5]}, "float is the wrong type"),
    ):
        with pytest.raises(ConfigurationError, match=text):
            config.configure(**bad)  # type: ignore[arg-type]
    assert config.resolve() == resolved


def test_each_device_is_its_own_chip(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "each_device_is_its_own_chip.py", MIXED)


def test_memory_and_its_policy_are_each_devices_own(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "memory_and_its_policy_are_each_devices_own.py",
        {**MIXED, "TORCH_LOOM_MEMORY": "4GiB,1GiB,512MiB"},
    )


def test_fallbacks_are_those_of_the_tensors_device(fork_loom: PythonRunner) -> None:
    fork_loom(
        PROGRAMS / "fallbacks_are_those_of_the_tensors_device.py", {**MIXED, "TORCH_LOOM_FALLBACK": "warn"}
    )


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["auto", "chaos"])
def test_a_model_over_different_chips_trains_as_on_the_cpu(fork_loom: PythonRunner, launch: str) -> None:
    fork_loom(
        PROGRAMS / "a_model_over_different_chips_trains_as_on_the_cpu.py",
        {**MIXED, "TORCH_LOOM_LAUNCH": launch, "TORCH_LOOM_CHAOS_SEED": "3"},
    )


def test_operands_on_two_chips_are_refused(fork_loom: PythonRunner) -> None:
    fork_loom(PROGRAMS / "operands_on_two_chips_are_refused.py", MIXED)
