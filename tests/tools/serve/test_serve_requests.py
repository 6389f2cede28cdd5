"""Traces of requests: what is read, and what is refused."""

from __future__ import annotations

from pathlib import Path

import pytest

from torch_loom.errors import ConfigurationError
from torch_loom.tools.serve import requests
from torch_loom.tools.serve.requests import Request, percentiles, read

GOOD = '{"prompt_tokens": 5, "new_tokens": 2, "arrival": 1.5}'


def trace(tmp_path: Path, text: str) -> Path:
    path = tmp_path / "requests.jsonl"
    path.write_text(text, encoding="utf-8")
    return path


def test_requests_come_in_the_order_of_their_arrival(tmp_path: Path) -> None:
    found = read(trace(tmp_path, f'{GOOD}\n\n{{"prompt_tokens": 7, "new_tokens": 1}}\n'))
    assert found == [Request(7, 1, 0.0), Request(5, 2, 1.5)]


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "0 requests. Allowed: 1 to"),
        ("{", "jsonl:1: not a JSON object"),
        (GOOD + "\n[1]", "jsonl:2: must be an object, got list"),
        ('{"prompt_tokens": 5}', "new_tokens = None. Allowed: a whole number"),
        ('{"prompt_tokens": 0, "new_tokens": 2}', "prompt_tokens = 0"),
        ('{"prompt_tokens": true, "new_tokens": 2}', "prompt_tokens = True"),
        ('{"prompt_tokens": 1e3, "new_tokens": 2}', "prompt_tokens = 1000.0"),
        ('{"prompt_tokens": 9999999, "new_tokens": 2}', "prompt_tokens = 9999999"),
        ('{"prompt": 5, "new_tokens": 2}', "unknown field 'prompt'. Allowed: prompt_tokens"),
        ('{"prompt_tokens": 5, "new_tokens": 2, "arrival": -1}', "arrival = -1"),
        ('{"prompt_tokens": 5, "new_tokens": 2, "arrival": NaN}', "arrival = nan"),
        ("[" * 100_000, "not a JSON object"),
    ],
)
def test_a_line_that_is_wrong_is_named(tmp_path: Path, text: str, says: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        read(trace(tmp_path, text))
    assert says in str(caught.value)


def test_a_request_longer_than_the_context_is_refused(tmp_path: Path) -> None:
    path = trace(tmp_path, GOOD)
    assert read(path, 7) == read(path)
    with pytest.raises(ConfigurationError, match=r"= 7. Allowed: 6, the model's context"):
        read(path, 6)


def test_files_that_cannot_be_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(ConfigurationError, match="no such file"):
        read(tmp_path / "missing.jsonl")
    with pytest.raises(ConfigurationError, match="folder"):
        read(tmp_path)
    path = tmp_path / "bytes.jsonl"
    path.write_bytes(b"\xff\xfe")
    with pytest.raises(ConfigurationError, match="cannot be read"):
        read(path)
    monkeypatch.setattr(requests, "MAX_FILE_BYTES", 1)
    with pytest.raises(ConfigurationError, match="too large"):
        read(path)


def test_percentiles() -> None:
    found = percentiles([float(value) for value in range(1, 101)])
    assert found == {"mean": 50.5, "p50": 50.0, "p90": 90.0, "p99": 99.0}
    assert set(percentiles([3.0]).values()) == {3.0}
