"""Devices of different chips in one program: each has its own capacity, policy, figures and fallbacks."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from torch_loom import config
from torch_loom.errors import ConfigurationError

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
    fork_loom(
        """
        import torch, torch_loom
        loom = torch.loom
        assert loom.device_count() == 3
        names = [loom.get_device_name(i) for i in range(3)]
        assert names == ["h200", "loom1", "atom"], names
        assert loom.get_arch_list() == names
        properties = [loom.get_device_properties(i) for i in range(3)]
        assert [p.extra["memory_policy"] for p in properties] == ["eager", "eager", "lazy"]
        totals = [loom.mem_get_info(i)[1] for i in range(3)]
        assert totals == [p.total_memory for p in properties] and len(set(totals)) == 3
        assert properties[0].multi_processor_count != properties[2].multi_processor_count
        # What answers for "the chip" answers for the current device.
        assert torch.bfloat16 in loom.get_amp_supported_dtype()
        assert loom.is_bf16_supported(including_emulation=False) and loom.is_tf32_supported()
        with loom.device(2):
            assert loom.get_amp_supported_dtype() == [torch.float16]
            assert not loom.is_bf16_supported(including_emulation=False) and not loom.is_tf32_supported()
            assert loom.power_draw() < 50_000
        assert loom.power_draw() > 50_000
        """,
        MIXED,
    )


def test_memory_and_its_policy_are_each_devices_own(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        loom = torch.loom
        eager, lazy = torch.empty(1000, device="loom:0"), torch.empty(1000, device="loom:2")
        assert loom.memory_allocated(0) == 4096 and loom.memory_allocated(2) == 0
        assert loom.memory_stats(2)["lazy.pending_tensors"] == 1
        assert loom.memory_stats(0)["lazy.pending_tensors"] == 0
        lazy.fill_(2).add_(1)
        assert loom.memory_allocated(2) == 4096
        # Between the policies, both ways, in device and dtype.
        assert torch.equal(lazy.to("loom:0").cpu(), torch.full((1000,), 3.0))
        assert torch.equal(torch.ones(5, device="loom:0").to("loom:2").half().cpu(), torch.ones(5).half())
        def too_much():
            torch.empty(2 << 30, dtype=torch.uint8, device="loom:1")
        raises("OutOfMemoryError", "capacity of 1.00 GiB", too_much)
        torch.empty(2 << 30, dtype=torch.uint8, device="loom:0")
        """,
        {**MIXED, "TORCH_LOOM_MEMORY": "4GiB,1GiB,512MiB"},
    )


def test_fallbacks_are_those_of_the_tensors_device(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom, warnings
        loom = torch.loom
        x, y = torch.ones(4, device="loom:0"), torch.ones(4, dtype=torch.float16, device="loom:2")
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            x.exp().erfinv()
            y + y
        loom.reset_fallback_stats()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            (y + y).exp()
            torch.ones(4, device="loom:2") * 2.0
            torch.ones(4, device="loom:0").exp()
        texts = [str(warning.message) for warning in caught]
        assert len(texts) == 2, texts
        assert "`aten::exp` op ran on CPU" in texts[0]
        assert "float32 is not a dtype of the chip 'atom'" in texts[1], texts
        assert loom.fallback_stats() == {("aten::exp", None): 1, ("aten::mul", torch.float32): 1}
        with loom.device(2):  # the tensor's device counts, not the current one
            torch.arange(3, dtype=torch.float16, device="loom:0").exp()
        assert loom.fallback_stats()[("aten::exp", None)] == 1
        """,
        {**MIXED, "TORCH_LOOM_FALLBACK": "warn"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("launch", ["auto", "chaos"])
def test_a_model_over_different_chips_trains_as_on_the_cpu(fork_loom: PythonRunner, launch: str) -> None:
    fork_loom(
        """
        import torch, torch_loom
        from torch import nn
        def run(first, second):
            torch.manual_seed(0)
            a, b = nn.Linear(8, 16).to(first), nn.Linear(16, 4).to(second)
            x = torch.arange(16.0).reshape(2, 8).div(16).to(first)
            optimizer = torch.optim.SGD([*a.parameters(), *b.parameters()], lr=0.1)
            for _ in range(3):
                optimizer.zero_grad()
                b(a(x).relu().to(second)).square().sum().backward()
                optimizer.step()
            return [p.detach().cpu() for p in (*a.parameters(), *b.parameters())]
        for mine, reference in zip(run("loom:0", "loom:2"), run("cpu", "cpu"), strict=True):
            torch.testing.assert_close(mine, reference)
        # A side stream of each, ordered by an event between them.
        s, t = torch.loom.Stream(0), torch.loom.Stream(2)
        with torch.loom.stream(s):
            x = torch.full((1000,), 2.0, device="loom:0") * 2
            event = s.record_event()
        with torch.loom.stream(t):
            t.wait_event(event)
            y = x.to("loom:2") + 1
        t.synchronize()
        assert torch.equal(y.cpu(), torch.full((1000,), 5.0))
        """,
        {**MIXED, "TORCH_LOOM_LAUNCH": launch, "TORCH_LOOM_CHAOS_SEED": "3"},
    )


def test_operands_on_two_chips_are_refused(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch, torch_loom
        a, b = torch.ones(2, device="loom:0"), torch.ones(2, device="loom:2")
        raises("RuntimeError", "loom:0 and loom:2", lambda: a + b)
        """,
        MIXED,
    )
