"""Text generation of transformers: what it makes on cuda is what it makes on the CPU."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from tests.libraries.common import assert_on_cuda, tiny_llama

MODES: dict[str, dict[str, Any]] = {
    "greedy": {"do_sample": False},
    "beams": {"num_beams": 3},
    "static cache": {"do_sample": False, "cache_implementation": "static"},
    "no cache": {"do_sample": False, "use_cache": False},
    "prompt lookup": {"do_sample": False, "prompt_lookup_num_tokens": 3},
}


def generated(device: str, seed: int = 0, **options: Any) -> torch.Tensor:
    model = tiny_llama().to(device).eval()
    torch.manual_seed(seed)
    if device == "cuda":
        assert_on_cuda(model.parameters())
    prompt = torch.tensor([[1, 5, 6, 7], [1, 9, 10, 11]][: 1 if "prompt_lookup_num_tokens" in options else 2])
    tokens = model.generate(
        prompt.to(device), attention_mask=torch.ones_like(prompt).to(device), max_new_tokens=12, **options
    )
    assert tokens.device.type == device
    return tokens.cpu()


@pytest.mark.parametrize("mode", MODES)
def test_mode(mode: str) -> None:
    assert generated("cuda", **MODES[mode]).equal(generated("cpu", **MODES[mode]))


@pytest.mark.parametrize("options", [{}, {"num_beams": 2}], ids=["sampling", "beam sampling"])
def test_sampling_repeats_with_its_seed(options: dict[str, Any]) -> None:
    def run(seed: int) -> torch.Tensor:
        return generated("cuda", seed, do_sample=True, top_k=20, top_p=0.9, temperature=1.5, **options)

    assert run(1).equal(run(1))
    assert not run(1).equal(run(2))


def test_assisted() -> None:
    model, helper = tiny_llama().cuda(), tiny_llama(1).cuda()
    prompt = torch.tensor([[1, 5, 6, 7]]).cuda()
    plain = model.generate(prompt, max_new_tokens=8, do_sample=False)
    assert model.generate(prompt, max_new_tokens=8, do_sample=False, assistant_model=helper).equal(plain)


def test_half_precision() -> None:
    model = tiny_llama().to("cuda", torch.float16)
    assert model.generate(torch.tensor([[1, 5]]).cuda(), max_new_tokens=4).is_cuda
