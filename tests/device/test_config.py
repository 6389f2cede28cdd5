"""Settings: parsing, where values come from, what bad ones say."""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import Any

import pytest

import torch_loom
from torch_loom import config
from torch_loom.errors import AlreadyInitializedError, ConfigurationError

DEFAULTS = config.Settings(
    device_name="loom",
    devices=2,
    chips=("loom1", "loom1"),
    memories=(None, None),
    memory_policy=None,
    visible_devices=None,
    driver="virtual",
    launch="auto",
    chaos_seed=None,
    protect=False,
    clock="simulated",
    sanitizer=False,
    machine="default",
    fallback="allow",
    log_level=None,
)


@pytest.fixture(autouse=True)
def clean_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    for variable in list(os.environ):
        if variable.startswith((config.ENV_PREFIX, "TORCH_RBLN_", "RBLN_")):
            monkeypatch.delenv(variable)
    monkeypatch.setattr(config, "_overrides", {})
    monkeypatch.setattr(config, "_frozen", False)


@pytest.mark.parametrize("name", ["CUDA", "Cuda", "LOOM", "Rbln"])
def test_a_known_device_name_in_capitals(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICE_NAME", name)
    with pytest.raises(ConfigurationError) as raised:
        config.device_name()
    assert str(raised.value).startswith(
        f"TORCH_LOOM_DEVICE_NAME={name!r}: write it in lower case, {name.lower()}. Allowed: "
    )


def test_a_keyword_that_is_wrong_names_the_nearest() -> None:
    with pytest.raises(TypeError, match=r"configure\(\) has no argument 'device': do you mean 'devices'"):
        torch_loom.config.configure(device=2)  # type: ignore[call-arg]


@pytest.mark.parametrize("given", [{"chips": ["h200", "h20"]}, {"chip": "h20"}])
def test_a_chip_that_is_not_shipped(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError, match=r"there is no chip 'h20'; do you mean h200( or \w+)*\?"):
        torch_loom.config.configure(**given)
    with pytest.raises(
        ConfigurationError, match="'n300' is a board with 2 chips of wormhole_b0: take the chip"
    ):
        torch_loom.config.configure(chip="n300")
    with pytest.raises(ConfigurationError, match="shipped are a10, a100, "):
        torch_loom.config.configure(chip="zzz")
    assert config.resolve().chip == "loom1"
    torch_loom.config.configure(chips=["atom", "own.toml"])  # read at first use
    assert config.resolve().chips == ("atom", "own.toml")


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
        name = setting.name.upper()
        allowed = {config.ENV_PREFIX + name}
        if name.startswith(("RBLN_", "CUDA_", "CUBLAS")):
            allowed |= {name, f"TORCH_{name}"}
        assert setting.env in allowed
        assert setting.type_name
        assert setting.allowed
        assert setting.meaning.endswith(".")
        assert setting.default is None or setting.parse(setting.default) is not None


def test_defaults() -> None:
    settings = config.resolve()
    assert settings == DEFAULTS
    assert settings.physical_devices == (0, 1)
    with pytest.raises(AttributeError):
        settings.devices = 3  # type: ignore[misc]


def test_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICES", "4")
    monkeypatch.setenv("TORCH_LOOM_MEMORY", "1.5GiB")
    monkeypatch.setenv("TORCH_LOOM_VISIBLE_DEVICES", "3, 1")
    monkeypatch.setenv("TORCH_LOOM_DRIVER", "null")
    monkeypatch.setenv("TORCH_LOOM_CHIP", "h200")
    monkeypatch.setenv("TORCH_LOOM_MEMORY_POLICY", "lazy")
    monkeypatch.setenv("TORCH_LOOM_LAUNCH", "chaos")
    monkeypatch.setenv("TORCH_LOOM_CHAOS_SEED", str(2**64 - 1))
    monkeypatch.setenv("TORCH_LOOM_PROTECT", "1")
    monkeypatch.setenv("TORCH_LOOM_CLOCK", "wall")
    monkeypatch.setenv("TORCH_LOOM_SANITIZER", "1")
    monkeypatch.setenv("TORCH_LOOM_MACHINE", "ci_7")
    monkeypatch.setenv("TORCH_LOOM_FALLBACK", "warn")
    monkeypatch.setenv("TORCH_LOOM_LOG_LEVEL", "INFO")
    settings = config.resolve()
    assert settings == config.Settings(
        device_name="loom",
        devices=4,
        chips=("h200",) * 4,
        memories=(3 << 29,) * 4,
        memory_policy="lazy",
        visible_devices=(3, 1),
        driver="null",
        launch="chaos",
        chaos_seed=2**64 - 1,
        protect=True,
        clock="wall",
        sanitizer=True,
        machine="ci_7",
        fallback="warn",
        log_level="INFO",
    )
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
        ("TORCH_LOOM_CHIP", "", "`loom chips` lists them"),
        ("TORCH_LOOM_MEMORY_POLICY", "sometimes", "eager, lazy"),
        ("TORCH_LOOM_LAUNCH", "sync", "auto, blocking, chaos"),
        ("TORCH_LOOM_CHAOS_SEED", "-1", "0 to 18446744073709551615"),
        ("TORCH_LOOM_CHAOS_SEED", str(2**64), "0 to 18446744073709551615"),
        ("TORCH_LOOM_CHAOS_SEED", "", "0 to 18446744073709551615"),
        ("TORCH_LOOM_PROTECT", "yes", "0, 1"),
        ("TORCH_LOOM_CLOCK", "sundial", "simulated, wall"),
        ("TORCH_LOOM_SANITIZER", "true", "0, 1"),
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


def test_the_clock_may_be_simulated(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_CLOCK", "simulated")
    assert config.resolve().clock == "simulated"


@pytest.mark.parametrize(
    ("policy", "eager_malloc", "expected"),
    [
        (None, None, None),
        (None, "0", None),
        (None, "1", "eager"),
        ("lazy", "1", "lazy"),
        ("eager", "0", "eager"),
    ],
)
def test_under_the_name_rbln(
    monkeypatch: pytest.MonkeyPatch, policy: str | None, eager_malloc: str | None, expected: str | None
) -> None:
    if policy is not None:
        monkeypatch.setenv("TORCH_LOOM_MEMORY_POLICY", policy)
    if eager_malloc is not None:
        monkeypatch.setenv("TORCH_RBLN_EAGER_MALLOC", eager_malloc)
    assert config.resolve().memory_policy == policy
    monkeypatch.setenv("TORCH_LOOM_DEVICE_NAME", "rbln")
    settings = config.resolve()
    assert (settings.chips, settings.memories) == (("atom",) * 2, (None,) * 2)
    assert settings.memory_policy == expected
    assert config.raw_value(config.CHIP) == ("atom", "default")
    monkeypatch.setenv("TORCH_LOOM_CHIP", "loom1")
    monkeypatch.setenv("TORCH_LOOM_MEMORY", "1GiB")
    settings = config.resolve()
    assert (settings.chips, settings.memories) == (("loom1",) * 2, (1 << 30,) * 2)


def test_a_bad_value_of_the_vendors_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_RBLN_EAGER_MALLOC", "yes")
    assert config.resolve().memory_policy is None
    monkeypatch.setenv("TORCH_LOOM_DEVICE_NAME", "rbln")
    with pytest.raises(ConfigurationError, match=r"TORCH_RBLN_EAGER_MALLOC='yes'.*Allowed: 0, 1"):
        config.resolve()


def test_an_unknown_variable_is_an_error_that_names_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICE", "3")
    with pytest.raises(
        ConfigurationError, match=r"TORCH_LOOM_DEVICE='3'.*closest one is TORCH_LOOM_DEVICES;"
    ):
        config.resolve()


def test_configure_wins_over_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_DEVICES", "nonsense")
    config.configure(devices=4, memory=1 << 30, visible_devices=[2, 0], driver="null")
    expected = DEFAULTS._replace(
        devices=4,
        chips=("loom1",) * 4,
        memories=(1 << 30,) * 4,
        visible_devices=(2, 0),
        driver="null",
    )
    assert config.resolve() == expected
    config.configure(memory="3MiB", visible_devices="3", chip=Path("mine.toml"), memory_policy="lazy")
    expected = expected._replace(
        memories=(3 << 20,) * 4,
        visible_devices=(3,),
        chips=("mine.toml",) * 4,
        memory_policy="lazy",
    )
    assert config.resolve() == expected
    config.configure(launch="chaos", chaos_seed=7, protect=True, clock="wall", sanitizer=False)
    assert config.resolve() == expected._replace(launch="chaos", chaos_seed=7, protect=True, clock="wall")
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
        ("chip", 3.5),
        ("memory_policy", True),
        ("launch", "sync"),
        ("chaos_seed", -1),
        ("chaos_seed", False),
        ("protect", 2),
        ("clock", "sundial"),
        ("sanitizer", "on"),
        ("fallback", "never"),
        ("log_level", "info"),
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
    assert readers == {"config/sources.py"}


def test_an_unknown_variable_names_the_closest(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_LOOM_CHPI", "h200")
    with pytest.raises(ConfigurationError) as raised:
        config.resolve()
    assert str(raised.value).startswith(
        "TORCH_LOOM_CHPI='h200': there is no such setting. The closest one is TORCH_LOOM_CHIP;"
    )
    assert "TORCH_LOOM_MEMORY" not in str(raised.value)
