"""Models larger than a device: `device_map` of transformers and accelerate, with offload to the host."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import LlamaForCausalLM, pipeline

from tests.libraries.common import assert_on_cuda, tiny_llama


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("model")
    tiny_llama(4).save_pretrained(folder)
    return folder


def logits(model: Any) -> torch.Tensor:
    with torch.no_grad():
        return model(torch.tensor([[1, 5, 6, 7]]).to(model.device)).logits.float().cpu()


@pytest.mark.parametrize("way", ["auto", "balanced", "sequential", "cuda", "cuda:1"])
def test_device_map(saved: Path, way: str) -> None:
    model = LlamaForCausalLM.from_pretrained(saved, device_map=way)
    assert_on_cuda(model.parameters())
    torch.testing.assert_close(logits(model), logits(tiny_llama(4)))
    if way == "balanced":
        assert {parameter.device.index for parameter in model.parameters()} == {0, 1}


def test_offload_to_the_host(saved: Path) -> None:
    size = sum(parameter.nbytes for parameter in tiny_llama(4).parameters())
    memory = {0: size // 3, 1: size // 3, "cpu": "1GB"}
    model = LlamaForCausalLM.from_pretrained(saved, device_map="auto", max_memory=memory)
    places = set(model.hf_device_map.values())
    assert {0, 1, "cpu"} <= places, places
    torch.testing.assert_close(logits(model), logits(tiny_llama(4)))
    tokens = model.generate(torch.tensor([[1, 5]]).cuda(), max_new_tokens=4)
    assert tokens.is_cuda


def test_offload_to_disk(saved: Path, tmp_path: Path) -> None:
    size = sum(parameter.nbytes for parameter in tiny_llama(4).parameters())
    memory = {0: size // 3, "cpu": size // 3}
    model = LlamaForCausalLM.from_pretrained(
        saved, device_map="auto", max_memory=memory, offload_folder=tmp_path
    )
    assert "disk" in model.hf_device_map.values()
    torch.testing.assert_close(logits(model), logits(tiny_llama(4)))


def test_pipeline_chooses_cuda() -> None:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<s>": 1, "</s>": 2, **{f"w{index}": index for index in range(3, 64)}}
    backend = Tokenizer(models.WordLevel(words, unk_token="<pad>"))
    backend.pre_tokenizer = pre_tokenizers.Whitespace()
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=backend, pad_token="<pad>", eos_token="</s>")
    maker = pipeline("text-generation", model=tiny_llama(), tokenizer=tokenizer)
    assert maker.device.type == "cuda"
    assert_on_cuda(maker.model.parameters())
    assert maker("w5 w6 w7", max_new_tokens=4)[0]["generated_text"].startswith("w5 w6 w7")


def test_safetensors(saved: Path) -> None:
    from safetensors.torch import load_file, save_file

    tensors = load_file(next(saved.glob("*.safetensors")), device="cuda")
    assert_on_cuda(tensors.values())
    save_file(tensors, saved / "again.st")
    for name, tensor in load_file(saved / "again.st", device="cuda:1").items():
        assert tensor.device == torch.device("cuda:1")
        assert tensor.cpu().equal(tensors[name].cpu())
