"""pybuda.transformers.pipeline: random models generate on a TTDevice as they do on the host."""

from __future__ import annotations

from typing import Any

import pytest
import torch

from torch_loom import pybuda
from torch_loom.errors import PyBudaError
from torch_loom.pybuda.transformers.pipeline import NLPPipelineWrapper, pipeline

transformers = pytest.importorskip("transformers", reason="its models are what runs")
tokenizers = pytest.importorskip("tokenizers", reason="it makes the texts' tokens")

WORDS = [f"w{number}" for number in range(64)]
SIZES = {"vocab_size": 64, "bos_token_id": 0, "eos_token_id": None, "pad_token_id": 0}
CONFIGS: dict[str, Any] = {
    "GPT2": lambda t: t.GPT2Config(n_embd=32, n_layer=2, n_head=2, n_positions=64, **SIZES),
    "GPTNeo": lambda t: t.GPTNeoConfig(
        hidden_size=32,
        num_layers=2,
        num_heads=2,
        attention_types=[[["global", "local"], 1]],
        max_position_embeddings=64,
        **SIZES,
    ),
    "OPT": lambda t: t.OPTConfig(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        ffn_dim=64,
        word_embed_proj_dim=32,
        max_position_embeddings=64,
        **SIZES,
    ),
    "XGLM": lambda t: t.XGLMConfig(
        d_model=32, num_layers=2, attention_heads=2, ffn_dim=64, max_position_embeddings=64, **SIZES
    ),
    "CodeGen": lambda t: t.CodeGenConfig(
        n_embd=32, n_layer=2, n_head=4, n_positions=64, n_ctx=64, rotary_dim=4, **SIZES
    ),
    "Phi": lambda t: t.PhiConfig(
        hidden_size=32, num_hidden_layers=2, num_attention_heads=2, intermediate_size=64, **SIZES
    ),
    "Qwen2": lambda t: t.Qwen2Config(
        hidden_size=32,
        num_hidden_layers=2,
        num_attention_heads=2,
        num_key_value_heads=1,
        intermediate_size=64,
        **SIZES,
    ),
}


def _tokenizer() -> Any:
    words = tokenizers.Tokenizer(
        tokenizers.models.WordLevel({word: n for n, word in enumerate(WORDS)}, unk_token="w0")
    )
    words.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return transformers.PreTrainedTokenizerFast(tokenizer_object=words, pad_token="w0", unk_token="w0")


def _model(kind: str) -> Any:
    torch.manual_seed(0)
    return transformers.AutoModelForCausalLM.from_config(CONFIGS[kind](transformers)).eval()


def _generated(made: Any) -> str:
    text: str = made("w3 w17 w5 w9", max_new_tokens=8, do_sample=False)[0]["generated_text"]
    return text


@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_generates_what_it_does_on_the_host(kind: str) -> None:
    tokenizer = _tokenizer()
    expected = _generated(transformers.pipeline("text-generation", model=_model(kind), tokenizer=tokenizer))
    for use_cache in (True, False):
        made = pipeline("text-generation", model=_model(kind), tokenizer=tokenizer, use_cache=use_cache)
        assert _generated(made) == expected
        pybuda.pybuda_reset()


def test_keys_and_values_stay_on_the_device() -> None:
    model = _model("GPT2")
    wrapper = NLPPipelineWrapper(model, use_cache=True)
    assert wrapper.ttdevice is not None
    made = model(input_ids=torch.tensor([[1, 2, 3]]), use_cache=True)
    assert made.logits.device.type == "cpu"
    kept = made.past_key_values.layers[0].keys
    assert kept.device == wrapper.ttdevice.torch_device()
    following = model(input_ids=torch.tensor([[4]]), past_key_values=made.past_key_values)
    assert following.past_key_values.get_seq_length() == 4


def test_a_function_of_the_program_computes_the_logits() -> None:
    seen = []

    def forward(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
        seen.append(tensors[0].shape)
        return torch.nn.functional.one_hot(tensors[0] + 1, 64).float()

    made = pipeline(
        "text-generation", model=_model("GPT2"), tokenizer=_tokenizer(), forward_fn=forward, use_cache=False
    )
    assert _generated(made).replace(" ", "") == "w3w17w5w9" + "".join(f"w{n}" for n in range(10, 18))
    assert seen[0] == (1, 4)


def test_what_is_asked_of_a_pipeline_is_checked() -> None:
    with pytest.raises(PyBudaError, match="give a model"):
        pipeline("text-generation")
    made = pipeline("text-generation", model=_model("GPT2"), tokenizer=_tokenizer(), pybuda_max_length=6)
    with pytest.raises(PyBudaError, match="7 tokens, and pybuda_max_length is 6"):
        _generated(made)
