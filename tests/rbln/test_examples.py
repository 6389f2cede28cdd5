"""examples/rbln: each script, run as its first lines say, prints what it should."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def run(name: str, commands: str = "") -> subprocess.CompletedProcess[str]:
    """Run a script as its docstring says, with `commands` on its standard input."""
    path = f"examples/rbln/{name}.py"
    found = re.search(
        rf"^    ((?:\w+=\w+ )+)python {re.escape(path)}$", (ROOT / path).read_text(), re.MULTILINE
    )
    assert found is not None, f"{path} does not say how it is run"
    settings = dict(word.split("=") for word in found[1].split())
    inherited = {key: value for key, value in os.environ.items() if not key.startswith(("TORCH_", "RBLN_"))}
    done = subprocess.run(
        [sys.executable, path],
        input=commands,
        env={**inherited, **settings},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr
    return done


def printed(name: str, commands: str = "") -> str:
    """Run a script as its docstring says; return its output."""
    return run(name, commands).stdout


@pytest.mark.slow
def test_basic_add() -> None:
    tensor = "tensor([[1.5000, 2.5000],\n        [3.5000, 4.5000]],{} dtype=torch.float16)\n"
    assert printed("basic_add") == (
        tensor.format(" device='rbln:0',") + tensor.format("") + "1536 bytes of RBLN-CA12 in use\n"
    )


@pytest.mark.slow
def test_breakpoint_in_module() -> None:
    out = printed("breakpoint_in_module", "p hidden\np hidden.device\n!_ = hidden.fill_(0.5)\nc\n")
    assert "breakpoint_in_module.py(22)forward()" in out
    assert "(Pdb) tensor([[-0.5596,  0.4602]], device='rbln:0', dtype=torch.float16)" in out
    assert "(Pdb) device(type='rbln', index=0)" in out
    assert out.endswith("result: tensor([[0.5000, 0.5000]], device='rbln:0', dtype=torch.float16)\n")


@pytest.mark.slow
def test_fallback_log() -> None:
    done = run("fallback_log")
    assert done.stdout == "total: [2.0, 6.0, 12.0]\nprecise: [0.7311, 0.8808, 0.9526]\n"
    told = [line for line in done.stderr.splitlines() if line.startswith("[TORCH-RBLN][INFO] ")]
    assert [line.split("`")[1] for line in told] == ["aten::cumsum", "aten::sigmoid"]
    assert told[0] == "[TORCH-RBLN][INFO] `aten::cumsum` op ran on CPU instead of RBLN"
    assert "float32" in told[1]
    assert 'fallback_log.py", line 13, in <module>' in done.stderr


@pytest.mark.slow
def test_find_nan() -> None:
    first, second = printed("find_nan").splitlines()
    assert first.startswith("inputs times 1: [-0.4")
    assert re.fullmatch(
        r"inputs times 100: 3 \(NaiveSoftmax\) made 2 NaN of 16 values on rbln:0; "
        r"its largest input is 44\.\d",
        second,
    )


@pytest.mark.slow
def test_llama_generate() -> None:
    prompt, generated, same, peak = printed("llama_generate").splitlines()
    assert len(prompt.split(",")) == 8
    assert len(generated.split(",")) == 16
    assert same == "same tokens as the cpu: True"
    assert 0.7 < float(peak.split()[-2]) < 3
