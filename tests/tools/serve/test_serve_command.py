"""`loom plan --serve`: a trace of requests, planned without the chip."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from typer.testing import CliRunner

from tests.conftest import PythonRunner
from torch_loom.errors import ConfigurationError
from torch_loom.tools import serve
from torch_loom.tools.cli import app
from torch_loom.tools.serve import steps
from torch_loom.tools.serve.schedule import Step

pytest.importorskip("transformers")

PROGRAMS = Path(__file__).parents[1] / "programs" / "serve"


@pytest.mark.long
def test_a_tiny_llama_is_served(fork_loom: PythonRunner, tmp_path: Path) -> None:
    fork_loom(PROGRAMS / "tiny_llama.py", given=str(tmp_path))


@pytest.mark.parametrize(
    "arguments", [["--serve", "model"], ["--serve", "m", "--trace", "t", "script.py"], []]
)
def test_what_goes_together_is_said(arguments: list[str]) -> None:
    done = CliRunner().invoke(app, ["plan", *arguments])
    assert done.exit_code == 2


def options(**changes: Any) -> dict[str, Any]:
    others = {"chip": "h100", "memory": None, "dtype": "float16", "max_batch": None, "graphs": False}
    return {
        **others,
        "schedule": "continuous",
        "trace": "missing.jsonl",
        "json": None,
        "html": None,
        **changes,
    }


@pytest.mark.long
def test_bad_options_are_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match=r"schedule = 'static'. Allowed: continuous, loop"):
        serve.plan("model", options(schedule="static"))
    with pytest.raises(ConfigurationError, match="no such file"):
        serve.plan("model", options())
    with pytest.raises(ConfigurationError, match=r"no model. Allowed: a folder with a config.json"):
        steps.model_of(str(tmp_path), "float16", "cpu")
    with pytest.raises(ConfigurationError, match=r"dtype = 'int8'"):
        steps.model_of(str(tmp_path), "int8", "cpu")
    without_heads = '{"model_type": "llama", "num_attention_heads": 0}'
    negative = '{"model_type": "llama", "hidden_size": 64, "num_attention_heads": 4, "vocab_size": -5}'
    no_model = ("{", "[]", '{"model_type": "t5"}', '{"model_type": "no-such-model"}')
    for text in (*no_model, without_heads, negative):
        (tmp_path / "config.json").write_text(text, encoding="utf-8")
        with pytest.raises(ConfigurationError, match="not a causal language model"):
            steps.model_of(str(tmp_path), "float16", "cpu")


def test_steps_are_interpolated() -> None:
    asked: list[tuple[int, int, int]] = []

    class Linear(steps.Steps):
        def _forward(self, batch: int, tokens: int, context: int) -> float:
            asked.append((batch, tokens, context))
            return batch * (100.0 + tokens + 0.5 * context)

    timed = Linear(None, "cpu", lambda: 0.0)
    assert timed.seconds(Step(0, 5, 1000.0)) == pytest.approx(5 * 601.0)
    assert {batch for batch, _, _ in asked} == {4, 6}
    assert timed.seconds(Step(700, 0, 0.0)) == pytest.approx(800.0)
    # A mixed step: all tokens together, and what the requests' contexts add.
    assert timed.seconds(Step(700, 4, 64.0)) == pytest.approx(804.0 + 4 * 32.0)
    count = len(asked)
    timed.seconds(Step(0, 5, 1000.0))
    assert len(asked) == count


def test_weights_that_leave_no_room_run_out_of_memory() -> None:
    model = torch.nn.Linear(10, 10, bias=False)
    assert steps.memory_of(model, 10, 500).cache_tokens == 9
    with pytest.raises(torch.OutOfMemoryError, match="the weights take 400 of 405 bytes"):
        steps.memory_of(model, 10, 405)
