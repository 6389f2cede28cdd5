"""Hugging Face's Trainer: precisions, checkpoints."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import Trainer, TrainingArguments

from tests.libraries.common import Sentences, assert_on_cuda, tiny_llama


def make_trainer(folder: Path, *, one_device: bool = False, **arguments: Any) -> Trainer:
    defaults: dict[str, Any] = {
        "output_dir": str(folder),
        "per_device_train_batch_size": 4,
        "max_steps": 8,
        "learning_rate": 1e-2,
        "logging_steps": 1,
        "report_to": [],
        "save_strategy": "no",
        "disable_tqdm": True,
        "seed": 0,
    }
    options = TrainingArguments(**(defaults | arguments))
    if one_device:  # else DataParallel over all devices, with larger batches
        assert options.n_gpu in (0, 2)
        options._n_gpu = min(options.n_gpu, 1)
    return Trainer(model=tiny_llama(), args=options, train_dataset=Sentences(), eval_dataset=Sentences(8))


def losses(trainer: Trainer) -> list[float]:
    return [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]


@pytest.mark.parametrize("precision", ["fp32", "fp16", "bf16"])
def test_precision(tmp_path: Path, precision: str) -> None:
    chosen = {} if precision == "fp32" else {precision: True}
    trainer = make_trainer(tmp_path, torch_compile=False, **chosen)
    assert trainer.args.device == torch.device("cuda:0")
    trainer.train()
    assert_on_cuda(trainer.model.parameters())
    assert losses(trainer)[-1] < losses(trainer)[0] * 0.9
    assert trainer.evaluate()["eval_loss"] < losses(trainer)[0]
    assert torch.cuda.max_memory_allocated() > 0


def test_same_losses_as_on_the_cpu(tmp_path: Path) -> None:
    on_device = make_trainer(tmp_path / "cuda", one_device=True)
    on_device.train()
    on_cpu = make_trainer(tmp_path / "cpu", use_cpu=True)
    on_cpu.train()
    assert losses(on_device) == pytest.approx(losses(on_cpu), abs=2e-3)


def test_resume(tmp_path: Path) -> None:
    whole = make_trainer(tmp_path / "whole", save_strategy="steps", save_steps=4)
    whole.train()
    resumed = make_trainer(tmp_path / "whole", save_strategy="steps", save_steps=4)
    resumed.train(resume_from_checkpoint=str(tmp_path / "whole" / "checkpoint-4"))
    assert_on_cuda(resumed.model.parameters())
    assert losses(resumed) == pytest.approx(losses(whole), abs=1e-5)
    for one, other in zip(whole.model.parameters(), resumed.model.parameters(), strict=True):
        torch.testing.assert_close(one, other)


def test_fp16_resume_keeps_the_scaler(tmp_path: Path) -> None:
    whole = make_trainer(tmp_path, fp16=True, save_strategy="steps", save_steps=4)
    whole.train()
    assert (tmp_path / "checkpoint-4" / "scaler.pt").exists()
    resumed = make_trainer(tmp_path, fp16=True)
    resumed.train(resume_from_checkpoint=str(tmp_path / "checkpoint-4"))
    assert_on_cuda(resumed.model.parameters())


def test_accumulation_and_checkpointing(tmp_path: Path) -> None:
    trainer = make_trainer(tmp_path, gradient_accumulation_steps=2, gradient_checkpointing=True, bf16=True)
    trainer.train()
    assert_on_cuda(trainer.model.parameters())
    assert losses(trainer)[-1] < losses(trainer)[0]


@pytest.mark.report(
    "huggingface/transformers", "`TrainingArguments(tf32=True)` opens on a card that has TF32"
)
def test_tf32(tmp_path: Path) -> None:
    from transformers.utils import is_torch_tf32_available

    assert is_torch_tf32_available()
    assert TrainingArguments(str(tmp_path), tf32=True, report_to=[]).tf32
