"""The command that runs the operator database under both names."""

from __future__ import annotations

import pytest

from tests.conformance import measure_names


@pytest.mark.parametrize(
    ("cudas", "status", "expected"),
    [([9, 0, 1], 0, 0), ([10, 0, 0], 0, 0), ([9, 0, 0], 0, 1), ([10, 0, 0], 1, 1)],
)
def test_as_many_pass(
    cudas: list[int],
    status: int,
    expected: int,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    counts = {"loom": ({"ops: Forward": [10, 0, 0]}, 0), "cuda": ({"ops: Forward": cudas}, status)}
    monkeypatch.setattr(measure_names, "measure", lambda name, chosen: counts[name])
    assert measure_names.main(["--no-write"]) == expected
    assert f"| ops: Forward | 10 | 0 | 0 | {cudas[0]} |" in capsys.readouterr().out
