"""pybuda.transformers.pipeline: random models generate on a TTDevice as they do on the host."""

from __future__ import annotations

from collections.abc import Callable
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


@pytest.mark.long
@pytest.mark.parametrize("kind", CONFIGS)
def test_a_model_generates_what_it_does_on_the_host(kind: str) -> None:
    tokenizer = _tokenizer()
    expected = _generated(transformers.pipeline("text-generation", model=_model(kind), tokenizer=tokenizer))
    for use_cache in (True, False):
        made = pipeline("text-generation", model=_model(kind), tokenizer=tokenizer, use_cache=use_cache)
        assert _generated(made) == expected
        pybuda.pybuda_reset()


def _t5() -> tuple[Any, dict[str, torch.Tensor]]:
    sizes = {"d_model": 32, "d_kv": 8, "d_ff": 64, "num_layers": 2, "num_heads": 4, "initializer_factor": 3.0}
    config = transformers.T5Config(decoder_start_token_id=0, **SIZES, **sizes)
    return transformers.T5ForConditionalGeneration(config), {"input_ids": torch.tensor([[3, 17, 5, 9]])}


def _whisper(**others: Any) -> tuple[Any, dict[str, torch.Tensor]]:
    each = {"layers": 2, "attention_heads": 2, "ffn_dim": 64}
    sizes = {f"{part}_{name}": size for part in ("encoder", "decoder") for name, size in each.items()}
    sizes |= {"d_model": 32, "num_mel_bins": 8, "max_source_positions": 16, "max_target_positions": 32}
    tokens = {"vocab_size": 64, "decoder_start_token_id": 1, "pad_token_id": 0, "bos_token_id": 0}
    config = transformers.WhisperConfig(**{**sizes, **tokens, "eos_token_id": 2, **others})
    return transformers.WhisperForConditionalGeneration(config), {"input_features": torch.randn(1, 8, 32)}


@pytest.mark.long
@pytest.mark.parametrize("use_cache", [True, False])
@pytest.mark.parametrize("make", [_t5, _whisper])
def test_encoders_and_decoders_generate_what_they_do_on_the_host(
    make: Callable[[], tuple[Any, dict[str, torch.Tensor]]], use_cache: bool
) -> None:
    def generated(is_on_device: bool) -> torch.Tensor:
        torch.manual_seed(0)
        model, given = make()
        model.eval()
        if is_on_device:
            NLPPipelineWrapper(model, use_cache=use_cache)
        made: torch.Tensor = model.generate(
            **given, max_new_tokens=6, do_sample=False, use_cache=use_cache, suppress_tokens=[0]
        )
        return made

    expected = generated(is_on_device=False)
    assert expected.unique().numel() > 1
    assert torch.equal(generated(is_on_device=True), expected)


def _speech_tokenizer() -> Any:
    # What follows the last of these are times.
    marks = ["<|endoftext|>", "<|startoftranscript|>", "<|transcribe|>", "<|notimestamps|>"]
    alphabet = sorted(tokenizers.pre_tokenizers.ByteLevel.alphabet())
    vocabulary = {token: number for number, token in enumerate([*alphabet, *marks])}
    bytewise = tokenizers.Tokenizer(tokenizers.models.BPE(vocab=vocabulary, merges=[]))
    bytewise.decoder = tokenizers.decoders.ByteLevel()
    return transformers.WhisperTokenizerFast(tokenizer_object=bytewise)


@pytest.mark.long
def test_speech_becomes_the_text_that_it_becomes_on_the_host() -> None:
    def text(make: Callable[..., Any]) -> str:
        torch.manual_seed(0)
        model, _ = _whisper(vocab_size=260, num_mel_bins=80, eos_token_id=None)
        model.generation_config.update(no_timestamps_token_id=259, is_multilingual=False)
        speaking = make(
            "automatic-speech-recognition",
            model=model.eval(),
            tokenizer=_speech_tokenizer(),
            # 32 frames of 10 ms, of which the encoder takes two at a time.
            feature_extractor=transformers.WhisperFeatureExtractor(chunk_length=0.32),
        )
        sound = torch.sin(torch.arange(5120) / 20).numpy()
        letters = {"max_new_tokens": 8, "suppress_tokens": list(range(94, 260))}  # no parts of them
        found: str = speaking(sound, generate_kwargs=letters)["text"]
        return found

    expected = text(transformers.pipeline)
    assert len(expected) == 8
    assert expected.isascii()
    assert text(pipeline) == expected


@pytest.mark.long
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
