"""examples/pipeline_gpt.py: its losses are plain PyTorch's, and a cache changes no token."""

from __future__ import annotations

import copy

import pytest
import torch

from examples import pipeline_gpt as gpt

NUM_STEPS = 12


@pytest.mark.slow
def test_a_gpt_over_two_chips() -> None:
    torch.manual_seed(0)
    first, last = gpt.place()
    halves = [copy.deepcopy(device.modules[0].module) for device in gpt.pybuda.pybudaglobal.get_devices()[:2]]
    losses, picture = gpt.train(first, last, NUM_STEPS)
    expected = []
    optimizers = [torch.optim.Adam(half.parameters(), 3e-3) for half in halves]
    for number, (tokens, targets) in enumerate(gpt.batches(NUM_STEPS * gpt.MICROBATCHES)):
        loss = gpt.NextToken()(halves[1](halves[0](tokens)), targets)
        loss.backward()
        expected.append(float(loss))
        if number % gpt.MICROBATCHES == gpt.MICROBATCHES - 1:
            for optimizer in optimizers:
                optimizer.step()
                optimizer.zero_grad()
    assert losses == expected, "bit for bit"
    assert sum(losses[-4:]) < 0.9 * sum(losses[:4])
    assert [line.split()[0] for line in picture.splitlines()[:3]] == ["chip0", "chip1", "cpu"]
    assert {"F", "B"} <= set(picture)
    prompt = torch.tensor(list(b"Return "))
    tokens = gpt.generate(first, prompt, 16)
    known = [
        first.get_parameter_checkpoint(),
        gpt.pybuda.pybudaglobal.get_devices()[1].get_parameter_checkpoint(),
    ]
    for half, values in zip(halves, known, strict=True):
        half.load_state_dict({name: tensor.value() for name, tensor in values.items()})
    plain = prompt
    with torch.no_grad():
        while len(plain) < 16:
            logits = halves[1](halves[0](plain[None]))
            plain = torch.cat((plain, logits[0, -1].argmax()[None]))
    assert tokens.tolist() == plain.tolist()


@pytest.mark.slow
def test_emulated_training_converges_as_float32_does() -> None:
    """The mean of the last 20 losses after 200 steps is within 2% of float32's."""
    ends = []
    for numbers in (None, gpt.pybuda.DataFormat.Bfp8_b):
        gpt.pybuda.pybuda_reset()
        torch.manual_seed(0)
        first, last = gpt.place(numbers=numbers)
        assert first.emulates() == (numbers is not None)
        losses, _ = gpt.train(first, last, 200)
        ends.append(sum(losses[-20:]) / 20)
    exact, emulated = ends
    assert exact < 2.5 < losses[0], "it has learned"
    assert emulated != exact
    assert abs(emulated / exact - 1) <= 0.02
