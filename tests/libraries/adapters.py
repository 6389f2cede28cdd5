"""PEFT: LoRA of a causal model, saved and loaded."""

from __future__ import annotations

from pathlib import Path

import torch
from peft import LoraConfig, PeftModel, get_peft_model

from tests.libraries.common import Sentences, assert_on_cuda, tiny_llama


def test_lora(tmp_path: Path) -> None:
    torch.manual_seed(0)
    config = LoraConfig(r=4, lora_alpha=8, target_modules=["q_proj", "v_proj"], task_type="CAUSAL_LM")
    model = get_peft_model(tiny_llama(), config).cuda()
    assert_on_cuda(model.parameters())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=0.05)
    scaler = torch.amp.GradScaler("cuda")
    tokens = torch.stack([Sentences()[index]["input_ids"] for index in range(8)]).cuda()
    losses = []
    for _ in range(15):
        with torch.autocast("cuda", torch.float16):
            loss = model(input_ids=tokens, labels=tokens).loss
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()
        losses.append(loss.item())
    assert losses[-1] < losses[0]
    model.save_pretrained(tmp_path)
    with torch.no_grad():
        expected = model(input_ids=tokens).logits
        again = PeftModel.from_pretrained(tiny_llama().cuda(), tmp_path)
        assert_on_cuda(again.parameters())
        torch.testing.assert_close(again(input_ids=tokens).logits, expected)
        merged = again.merge_and_unload()
        torch.testing.assert_close(merged(input_ids=tokens).logits, expected, rtol=1e-3, atol=1e-4)
