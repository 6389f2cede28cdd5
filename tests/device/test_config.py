"""Settings: parsing, where values come from, what bad ones say."""

from __future__ import annotations

import dataclasses
import os
import re
from pathlib import Path

import pytest

import torch_loom
from torch_loom import config
from torch_loom.errors import AlreadyInitializedError, ConfigurationError


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith(config.ENV_PREFIX):
            monkeypatch.delenv(variable)
    monkeypatch.setattr(config, "_overrides", {})
    monkeypatch.setattr(config, "_frozen", False)


@pytest.mark.parametrize(
    ("text", "size_bytes"),
    [
        ("4096", 4096),
        ("512MiB", 512 << 20),
        ("1.5GiB", 3 << 29),
        ("16 gib", 16 << 30),
        ("2TiB", 2 << 40),
        ("1GB", 10**9),
        ("7B", 7),
        ("0.3KiB", 307),
    ],
)
def test_sizes(text: str, size_bytes: int) -> None:
    assert config.parse_size(text) == size_bytes


@pytest.mark.parametrize(
    "text", ["", "big", "-1", "1.5", "1e9", "nan", "16GiBs", "GiB", "1 2MiB", "\uff11\uff16"]
)
def test_what_is_no_size(text: str) -> None:
    with pytest.raises(ValueError, match="not a size"):
        config.parse_size(text)


def test_declarations_are_complete() -> None:
    assert len({setting.env for setting in config.SETTINGS}) == len(config.SETTINGS)
    for setting in config.SETTINGS:
        assert setting.env == config.ENV_PREFIX + setting.name.upper()
        assert setting.type_name
        assert setting.allowed
        assert setting.meaning.endswith(".")
        assert setting.default is None or setting.parse(setting.default) is not None


def test_defaults() -> None:
    settings = config.resolve()
    assert settings == config.Settings("loom", 2, 16 << 30, None, "virtual")
    assert settings.physical_devices == (0, 1)
    with pytest.raises(dataclasses.FrozenInstanceError):
        settings.devices = 3  # type: ignore[misc]


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICES", "4")
    monkeypatch.setenv("TORCH_LOOM_MEMORY", "1.5GiB")
    monkeypatch.setenv("TORCH_LOOM_VISIBLE_DEVICES", "3, 1")
    monkeypatch.setenv("TORCH_LOOM_DRIVER", "null")
    settings = config.resolve()
    assert settings == config.Settings("loom", 4, 3 << 29, (3, 1), "null")
    assert settings.physical_devices == (3, 1)
    assert config.raw_value(config.MEMORY) == ("1.5GiB", "environment")
    assert config.raw_value(config.DEVICE_NAME) == ("loom", "default")


@pytest.mark.parametrize(("text", "indices"), [("", ()), ("0", (0,)), ("1,0", (1, 0))])
def test_visible_devices(monkeypatch: pytest.MonkeyPatch, text: str, indices: tuple[int, ...]) -> None:
    monkeypatch.setenv("TORCH_LOOM_VISIBLE_DEVICES", text)
    assert config.resolve().physical_devices == indices


@pytest.mark.parametrize(
    ("variable", "text", "allowed"),
    [
        ("TORCH_LOOM_DEVICES", "two", "0 to 64"),
        ("TORCH_LOOM_DEVICES", "-1", "0 to 64"),
        ("TORCH_LOOM_DEVICES", "65", "0 to 64"),
        ("TORCH_LOOM_DEVICES", "", "0 to 64"),
        ("TORCH_LOOM_DEVICES", "1_0", "0 to 64"),
        ("TORCH_LOOM_MEMORY", "lots", "2MiB to 16TiB"),
        ("TORCH_LOOM_MEMORY", "1MiB", "2MiB to 16TiB"),
        ("TORCH_LOOM_MEMORY", "17TiB", "2MiB to 16TiB"),
        ("TORCH_LOOM_VISIBLE_DEVICES", "0,0", "without repetition"),
        ("TORCH_LOOM_VISIBLE_DEVICES", "0,2", "device indices"),
        ("TORCH_LOOM_VISIBLE_DEVICES", "-1", "device indices"),
        ("TORCH_LOOM_VISIBLE_DEVICES", "0,", "device indices"),
        ("TORCH_LOOM_DRIVER", "cuda", "virtual, null"),
        ("TORCH_LOOM_DEVICE_NAME", "np0", "letters and underscores"),
    ],
)
def test_a_bad_value_names_variable_value_and_what_is_allowed(
    monkeypatch: pytest.MonkeyPatch, variable: str, text: str, allowed: str
) -> None:
    monkeypatch.setenv(variable, text)
    with pytest.raises(ConfigurationError) as raised:
        config.resolve()
    message = str(raised.value)
    assert f"{variable}={text!r}" in message
    assert allowed in message.split("Allowed: ")[1]
    assert isinstance(raised.value, ValueError)


def test_an_unknown_variable_is_an_error_that_names_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICE", "3")
    with pytest.raises(
        ConfigurationError, match=r"TORCH_LOOM_DEVICE='3'.*closest one is TORCH_LOOM_DEVICES;"
    ):
        config.resolve()


def test_configure_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICES", "nonsense")
    config.configure(devices=4, memory=1 << 30, visible_devices=[2, 0], driver="null")
    assert config.resolve() == config.Settings("loom", 4, 1 << 30, (2, 0), "null")
    config.configure(memory="3MiB", visible_devices="3")
    assert config.resolve() == config.Settings("loom", 4, 3 << 20, (3,), "null")
    config.configure(visible_devices=())
    assert config.resolve().physical_devices == ()


@pytest.mark.parametrize(
    ("keyword", "value"),
    [
        ("devices", 65),
        ("devices", True),
        ("devices", 2.0),
        ("memory", "plenty"),
        ("memory", 0),
        ("memory", -1),
        ("visible_devices", [0, 0]),
        ("visible_devices", ["0"]),
        ("visible_devices", [7]),
        ("driver", "cuda"),
        ("driver", object),
    ],
)
def test_configure_changes_nothing_if_a_value_is_bad(keyword: str, value: object) -> None:
    before = config.resolve()
    good = {"devices": 3, "memory": "1GiB"}
    with pytest.raises(ConfigurationError, match=rf"configure\({keyword}="):
        config.configure(**{**good, keyword: value})  # type: ignore[arg-type]
    assert config.resolve() == before


def test_configure_after_first_use() -> None:
    config.freeze()
    with pytest.raises(
        AlreadyInitializedError, match=r"configure\(devices=4\): the devices have already been used"
    ):
        config.configure(devices=4)


def test_no_other_file_reads_the_environment() -> None:
    package = Path(torch_loom.__file__).parent
    readers = {
        str(path.relative_to(package))
        for path in package.rglob("*.py")
        if re.search(r"\benviron(\[|\.get\b)|\bgetenv\b", path.read_text(encoding="utf-8"))
    }
    assert readers == {"config.py"}
