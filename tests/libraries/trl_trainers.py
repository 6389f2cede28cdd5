"""trl: its trainers on a tiny random model. It needs `--devices 1`: it refuses DataParallel."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from tests.libraries.common import assert_on_cuda, tiny_llama

trl = pytest.importorskip("trl")
datasets = pytest.importorskip("datasets")


def tokenizer() -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = ["<pad>", "<s>", "</s>", "<unk>", *(f"w{number}" for number in range(60))]
    model = models.WordLevel({word: index for index, word in enumerate(words)}, unk_token="<unk>")
    plain = Tokenizer(model)
    plain.pre_tokenizer = pre_tokenizers.Whitespace()
    names = {"pad_token": "<pad>", "bos_token": "<s>", "eos_token": "</s>", "unk_token": "<unk>"}
    return PreTrainedTokenizerFast(tokenizer_object=plain, **names)


def logged(trainer: Any, name: str) -> list[float]:
    assert_on_cuda(trainer.model.parameters())
    return [entry[name] for entry in trainer.state.log_history if name in entry]


@pytest.fixture
def options(tmp_path: Path) -> dict[str, Any]:
    plain = {"output_dir": str(tmp_path), "max_steps": 2, "per_device_train_batch_size": 2}
    return {**plain, "report_to": [], "logging_steps": 1, "bf16": True}


@pytest.mark.report("huggingface/trl", "supervised training with LoRA on one visible GPU")
def test_sft(options: dict[str, Any]) -> None:
    from peft import LoraConfig

    trainer = trl.SFTTrainer(
        tiny_llama(),
        args=trl.SFTConfig(**options, packing=False, max_length=16),
        train_dataset=datasets.Dataset.from_dict({"text": ["w1 w2 w3 w4"] * 8}),
        processing_class=tokenizer(),
        peft_config=LoraConfig(target_modules=["q_proj", "v_proj"]),
    )
    trainer.train()
    assert len(logged(trainer, "loss")) == 2


@pytest.mark.report("huggingface/trl", "preferences: DPO on one visible GPU")
def test_dpo(options: dict[str, Any]) -> None:
    pairs = {"prompt": ["w1 w2"] * 8, "chosen": ["w3"] * 8, "rejected": ["w4"] * 8}
    trainer = trl.DPOTrainer(
        tiny_llama(),
        ref_model=tiny_llama(),
        args=trl.DPOConfig(**options),
        train_dataset=datasets.Dataset.from_dict(pairs),
        processing_class=tokenizer(),
    )
    trainer.train()
    assert len(logged(trainer, "loss")) == 2


@pytest.mark.report("huggingface/trl", "rewards: GRPO on one visible GPU")
def test_grpo(options: dict[str, Any]) -> None:
    def length(completions: list[str], **_: Any) -> list[float]:
        return [float(len(completion)) for completion in completions]

    trainer = trl.GRPOTrainer(
        tiny_llama(),
        args=trl.GRPOConfig(**options, num_generations=2, max_completion_length=4),
        reward_funcs=length,
        train_dataset=datasets.Dataset.from_dict({"prompt": ["w1 w2"] * 8}),
        processing_class=tokenizer(),
    )
    trainer.train()
    assert len(logged(trainer, "reward")) == 2
