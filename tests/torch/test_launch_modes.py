"""The launch modes: the same bits in each, races that chaos shows, processes that end with work pending."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.conftest import PythonRunner

TRAINING = """
import hashlib
import torch, torch_loom
import torch.nn as nn, torch.nn.functional as F

class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Sequential(nn.Conv2d(3, 8, 3), nn.BatchNorm2d(8), nn.ReLU(), nn.MaxPool2d(2))
        self.words = nn.Embedding(20, 16)
        self.lstm = nn.LSTM(16, 16, batch_first=True)
        self.attention = nn.MultiheadAttention(16, 2, batch_first=True)
        self.mix = nn.Sequential(nn.Linear(8 * 9 + 16, 32), nn.GELU(), nn.Dropout(0.2), nn.LayerNorm(32))
        self.out = nn.Linear(32, 5)

    def forward(self, image, words):
        text = self.lstm(self.words(words))[0]
        text = self.attention(text, text, text, need_weights=False)[0].mean(1)
        return self.out(self.mix(torch.cat([self.conv(image).flatten(1), text], 1)))

def train(side, threads):
    torch.set_num_threads(threads)
    torch.manual_seed(0)
    net = Net().to("loom")
    optimizer = torch.optim.AdamW(net.parameters(), lr=1e-2)
    scaler = torch.amp.GradScaler("loom")
    stream = torch.loom.Stream() if side else torch.loom.default_stream()
    stream.wait_stream(torch.loom.current_stream())
    losses = []
    with torch.loom.stream(stream):
        for step in range(5):
            image = torch.randn(4, 3, 8, 8, device="loom")
            words = torch.randint(0, 20, (4, 6), device="loom")
            target = torch.randint(0, 5, (4,), device="loom")
            with torch.autocast("loom", dtype=torch.bfloat16, enabled=step >= 3):
                loss = F.cross_entropy(net(image, words), target)
            optimizer.zero_grad()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)
            scaler.update()
            losses.append(loss.detach())
        stream.synchronize()
        digest = hashlib.sha256()
        for tensor in [*losses, *net.state_dict().values()]:
            digest.update(tensor.cpu().numpy().tobytes())
    return digest.hexdigest()[:16]

for threads in (1, 2):
    print(*{train(side, threads) for side in (False, True, True)})
"""


@pytest.fixture(scope="module")
def trained(fork_loom: PythonRunner) -> list[str]:
    """Return what training leads to in place, with one and two intra-op threads."""
    return fork_loom(TRAINING, {"TORCH_LOOM_LAUNCH": "blocking"}).stdout.splitlines()


@pytest.mark.slow
@pytest.mark.parametrize(
    "mode",
    ["auto", *(f"chaos {seed}" for seed in range(1, 5))],
)
def test_training_has_the_same_bits(fork_loom: PythonRunner, trained: list[str], mode: str) -> None:
    launch, _, seed = mode.partition(" ")
    env = {"TORCH_LOOM_LAUNCH": launch, **({"TORCH_LOOM_CHAOS_SEED": seed} if seed else {})}
    assert [len(line.split()) for line in trained] == [1, 1]
    assert fork_loom(TRAINING, env).stdout.splitlines() == trained


RACE = """
import torch_loom
side, default = torch.loom.Stream(), torch.loom.default_stream()
x, y = torch.zeros(64, device="loom"), torch.zeros(64, device="loom")
def program(value):
    with torch.loom.stream(side):
        x.fill_(value)
        x.mul_(2)
    {wait}
    torch.add(x, 1, out=y)
    side.wait_stream(default)
results = []
for value in range(4):
    program(value)
    torch.loom.synchronize()
    results.append(y.unique().tolist())
print(results == [[2.0 * value + 1] for value in range(4)])
"""


def outcomes(fork_loom: PythonRunner, wait: str) -> list[str]:
    code = RACE.format(wait=wait)
    return [
        fork_loom(code, {"TORCH_LOOM_LAUNCH": "chaos", "TORCH_LOOM_CHAOS_SEED": str(seed)}).stdout.strip()
        for seed in range(1, 21)
    ]


@pytest.fixture(scope="module")
def unordered(fork_loom: PythonRunner) -> list[str]:
    """Return the outcomes of the program that does not wait."""
    return outcomes(fork_loom, "pass")


@pytest.mark.slow
def test_chaos_finds_a_missing_wait(unordered: list[str]) -> None:
    assert "False" in unordered


@pytest.mark.slow
def test_chaos_heeds_waits(fork_loom: PythonRunner) -> None:
    assert outcomes(fork_loom, "default.wait_stream(side)") == ["True"] * 20
    assert outcomes(fork_loom, "default.wait_event(side.record_event())") == ["True"] * 20


@pytest.mark.slow
def test_chaos_repeats_itself(fork_loom: PythonRunner, unordered: list[str]) -> None:
    assert outcomes(fork_loom, "pass") == unordered


def test_blocking_runs_everything_in_place(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import torch_loom
        side = torch.loom.Stream()
        x = torch.ones(4, device="loom")
        with torch.loom.stream(side):
            for _ in range(3):
                y = x * 2
                assert side.query() and side.record_event().query()
            outside = torch.tensor([9], device="loom")
            raises("IndexError", "index out of range", lambda: torch.index_select(x, 0, outside))
        """,
        {"TORCH_LOOM_LAUNCH": "blocking"},
    )


PENDING = """
import torch
side = torch.loom.Stream()
x = torch.rand(400, 400, device="loom")
index = torch.tensor([{index}], device="loom")
with torch.loom.stream(side):
    for last in (False, True):
        for _ in range(20):
            y = x @ x
        if last:
            torch.index_select(x, 0, index)
        else:
            torch.index_select(x, 0, index * 0)
            side.synchronize()
torch.loom.Stream().wait_stream(side)
event = side.record_event()
"""


@pytest.mark.slow
@pytest.mark.parametrize("index", [0, 999], ids=["pending", "failed"])
@pytest.mark.parametrize("attempt", [0, *(pytest.param(i, marks=pytest.mark.slow) for i in range(1, 10))])
def test_a_process_may_end_with_work_pending(
    run_python: PythonRunner, warm_python: PythonRunner, attempt: int, index: int
) -> None:
    run = warm_python if attempt else run_python
    done = run(PENDING.format(index=index))
    assert (done.returncode, done.stderr) == (0, "")


def test_a_fork_with_work_pending(fork_loom: PythonRunner) -> None:
    fork_loom(
        """
        import os, torch_loom, traceback
        side = torch.loom.Stream()
        x = torch.ones(300, 300, device="loom")
        with torch.loom.stream(side):
            for _ in range(30):
                y = x @ x
        event = side.record_event()
        pid = os.fork()
        if pid == 0:
            try:
                for use in (torch.loom.Stream, torch.loom.current_stream, side.synchronize, side.query,
                            event.query, event.synchronize, side.record_event, y.cpu, lambda: y * 2):
                    raises("ForkError" if use is torch.loom.Stream or use is torch.loom.current_stream
                           else "RuntimeError", "Cannot re-initialize LOOM in forked subprocess", use)
                del y, event
            except BaseException:
                traceback.print_exc()
                os._exit(1)
            os._exit(0)
        assert os.waitpid(pid, 0)[1] == 0
        side.synchronize()
        assert y[0, 0].item() == 300
        """
    )
