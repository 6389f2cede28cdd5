"""The report in a browser: every epoch is drawn, with an area, and nothing is asked of a network."""

from __future__ import annotations

import re
import shutil
import subprocess
from pathlib import Path

import pytest
import torch
from torch import nn

import torch_loom
from torch_loom import compiler

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("plain_configuration")]
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
# Runs in the page: what was drawn, as an attribute of the document.
MEASURE = """<script>
const drawn = [...document.querySelectorAll("svg")].map((one) => {
  const box = one.getBoundingClientRect();
  const label = one.getAttribute("aria-label");
  const ops = one.querySelectorAll(".op");
  const seen = [...ops].filter((op) => op.getBoundingClientRect().width > 0);
  return `${label}:${Math.round(box.width)}:${Math.round(box.height)}:${ops.length}:${seen.length}`;
});
document.documentElement.dataset.drawn = drawn.join("|");
</script>"""


@pytest.fixture(scope="module")
def browser() -> str:
    found = next((path for name in BROWSERS if (path := shutil.which(name))), None)
    if found is None:
        pytest.skip("there is no Chromium on this machine")
    return found


def test_every_epoch_is_drawn(browser: str, tmp_path: Path) -> None:
    torch.manual_seed(0)
    net = nn.Sequential(*(nn.Linear(256, 256) for _ in range(4)), nn.GELU(), nn.LayerNorm(256)).eval()
    compiler.set_epoch_break(["linear_1", "linear_3"])
    run = torch_loom.compile(net, (torch.zeros(128, 256),), chip="wormhole_b0")
    path = tmp_path / "plan.html"
    run.report(path)
    path.write_text(path.read_text(encoding="utf-8") + MEASURE, encoding="utf-8")
    done = subprocess.run(
        [
            *(browser, "--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage"),
            *(f"--user-data-dir={tmp_path / 'profile'}", "--window-size=1200,1600"),
            *("--dump-dom", path.as_uri()),
        ],
        capture_output=True,
        text=True,
        timeout=100,
        check=True,
    )
    match = re.search(r'data-drawn="([^"]*)"', done.stdout)
    assert match is not None, done.stdout[:500]
    drawn = {
        label: [int(n) for n in rest] for label, *rest in (one.split(":") for one in match[1].split("|"))
    }
    for epoch in run.plan["epochs"]:
        width, height, ops, seen = drawn[f"Epoch {epoch['index']}"]
        assert width > 100
        assert height > 50
        assert ops == seen == len(epoch["ops"])
    assert len(run.plan["epochs"]) == 3
    assert drawn["Time line"][0] > 100
