"""Variables of NCCL's watchdog, as PyTorch reads them."""

from __future__ import annotations

import pytest

from torch_loom.config import watchdog
from torch_loom.errors import ConfigurationError

NAMES = (
    *("TORCH_NCCL_BLOCKING_WAIT", "TORCH_NCCL_ASYNC_ERROR_HANDLING", "TORCH_NCCL_DUMP_ON_TIMEOUT"),
    *("TORCH_FR_BUFFER_SIZE", "TORCH_NCCL_TRACE_BUFFER_SIZE", "TORCH_FR_DUMP_TEMP_FILE"),
    *("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "NCCL_BLOCKING_WAIT", "NCCL_ASYNC_ERROR_HANDLING"),
    *("TORCH_NCCL_NAN_CHECK", "TORCH_NCCL_ENABLE_TIMING", "NCCL_ENABLE_TIMING"),
    *("TORCH_NCCL_DESYNC_DEBUG", "NCCL_DESYNC_DEBUG"),
)


@pytest.fixture(autouse=True)
def unset(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CACHE_HOME", "/cache")


def test_defaults() -> None:
    assert watchdog.read() == (2000, True, False, False, False, False, "/cache/torch/comm_lib_trace_rank_")


@pytest.mark.parametrize(
    ("name", "text", "field", "value"),
    [
        ("TORCH_NCCL_TRACE_BUFFER_SIZE", "50", "num_records", 50),
        ("TORCH_FR_BUFFER_SIZE", "0", "num_records", 0),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "0", "ends_process", False),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "1", "ends_process", True),
        ("TORCH_NCCL_ASYNC_ERROR_HANDLING", "2", "ends_process", False),
        ("TORCH_NCCL_BLOCKING_WAIT", "1", "waits_block_host", True),
        ("TORCH_NCCL_BLOCKING_WAIT", "yes", "ends_process", False),
        ("TORCH_NCCL_NAN_CHECK", "1", "finds_nan", True),
        ("TORCH_NCCL_ENABLE_TIMING", "1", "is_timed", True),
        ("TORCH_NCCL_DESYNC_DEBUG", "1", "reports_desync", True),
        ("TORCH_NCCL_DUMP_ON_TIMEOUT", "0", "dump_prefix", None),
        ("TORCH_NCCL_DEBUG_INFO_TEMP_FILE", "/tmp/trace_", "dump_prefix", "/tmp/trace_"),
    ],
)
def test_each_variable(
    monkeypatch: pytest.MonkeyPatch, name: str, text: str, field: str, value: object
) -> None:
    monkeypatch.setenv(name, text)
    assert getattr(watchdog.read(), field) == value


def test_a_bad_value(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TORCH_FR_BUFFER_SIZE", "many")
    with pytest.raises(ConfigurationError, match=r"TORCH_FR_BUFFER_SIZE='many'\. Allowed: a whole number"):
        watchdog.read()


@pytest.mark.parametrize("text", ["abc", "-1", "2", "2147483647", "4294967295"])
def test_a_flag_is_yes_or_no(monkeypatch: pytest.MonkeyPatch, text: str) -> None:
    monkeypatch.setenv("TORCH_NCCL_BLOCKING_WAIT", text)
    with pytest.raises(ConfigurationError, match=f"TORCH_NCCL_BLOCKING_WAIT='{text}'"):
        watchdog.read()
