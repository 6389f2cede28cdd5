"""`loom plan`: a script that trains, planned without its chip."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

SCRIPT = """
import sys
import torch
from torch import nn

device = torch.device("{device}" if {available} else "cpu")
size = int(sys.argv[1])
model = nn.Sequential(nn.Linear(size, size), nn.GELU(), nn.Linear(size, 10)).to(device)
optimizer = torch.optim.AdamW(model.parameters())
for number in range(1000):
    optimizer.zero_grad()
    x, labels = torch.randn(32, size).to(device), torch.zeros(32).long().to(device)
    loss = nn.functional.cross_entropy(model(x), labels)
    loss.backward()
    optimizer.step()
    print("step", number)
"""


def planned(tmp_path: Path, device: str, size: int, *options: str) -> subprocess.CompletedProcess[str]:
    script = tmp_path / "train.py"
    available = "torch.cuda.is_available()" if device == "cuda" else "True"
    script.write_text(SCRIPT.format(device=device, available=available), encoding="utf-8")
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TORCH_LOOM_")}
    command = [sys.executable, "-m", "torch_loom.tools.cli", "plan", *options, str(script), str(size)]
    return subprocess.run(command, env=environment, capture_output=True, text=True, timeout=100, check=False)


@pytest.mark.slow
@pytest.mark.parametrize("device", ["cuda", "loom"])
def test_a_script_is_planned(tmp_path: Path, device: str) -> None:
    as_json, as_page = tmp_path / "plan.json", tmp_path / "plan.html"
    done = planned(tmp_path, device, 2048, "--steps", "2", "--json", str(as_json), "--html", str(as_page))
    assert done.returncode == 0, done.stdout + done.stderr
    assert "step 0" in done.stdout
    assert "step 1" not in done.stdout
    found = json.loads(as_json.read_text(encoding="utf-8"))
    assert len(found["step_seconds"]) == 2
    parameters = 4 * (2048 * 2048 + 2048 + 10 * 2048 + 10)
    categories = found["devices"][0]["memory_by_category"]
    assert categories["parameters"] == pytest.approx(parameters, rel=0.01)
    assert categories["optimizer state"] == pytest.approx(2 * parameters, rel=0.01)
    assert found["out_of_memory"] is None
    page = as_page.read_text(encoding="utf-8")
    assert page.count("<svg") == 2
    assert "src=" not in page
    assert "http" not in page
    assert "aten::addmm" in page


@pytest.mark.slow
def test_running_out_of_memory_ends_the_plan(tmp_path: Path) -> None:
    done = planned(tmp_path, "cuda", 32_768, "--memory", "4GiB")
    assert done.returncode == 3, done.stdout + done.stderr
    assert "out of memory" in done.stdout


def test_a_script_that_is_not_there(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "torch_loom.tools.cli", "plan", str(tmp_path / "no.py")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100, check=False)
    assert done.returncode == 1
    assert "no.py" in done.stderr
