"""bitsandbytes: linear layers of 8 and 4 bits, 8-bit optimizers, and QLoRA with transformers and PEFT."""

from __future__ import annotations

import copy
import io
from collections.abc import Iterator
from pathlib import Path

import bitsandbytes as bnb
import pytest
import torch
from peft import LoraConfig, PeftModel, get_peft_model, prepare_model_for_kbit_training
from torch import nn
from transformers import AutoModelForCausalLM, BitsAndBytesConfig

from tests.libraries.common import Sentences, assert_on_cuda, tiny_llama

LAYERS = {
    "int8": (lambda: bnb.nn.Linear8bitLt(64, 64, has_fp16_weights=False), torch.float16, 0.02),
    "int8 with outliers": (
        lambda: bnb.nn.Linear8bitLt(64, 64, has_fp16_weights=False, threshold=2.0),
        torch.float16,
        0.02,
    ),
    "nf4": (
        lambda: bnb.nn.Linear4bit(64, 64, quant_type="nf4", compute_dtype=torch.bfloat16),
        torch.bfloat16,
        0.12,
    ),
    "fp4": (
        lambda: bnb.nn.Linear4bit(
            64, 64, quant_type="fp4", compress_statistics=False, compute_dtype=torch.float32
        ),
        torch.float32,
        0.16,
    ),
}
OPTIMIZERS = [
    "Adam8bit",
    "AdamW8bit",
    "PagedAdamW8bit",
    "Lion8bit",
    "PagedLion8bit",
    "SGD8bit",
    "RMSprop8bit",
    "Adagrad8bit",
    "AdEMAMix8bit",
    "AdamW",
    "PagedAdamW",
    "Lion",
    "SGD",
    "LAMB",
    "LARS",
]


@pytest.fixture(autouse=True)
def _forget_maps() -> Iterator[None]:
    yield
    bnb.functional.name2qmap.clear()  # the library keeps one on the device


@pytest.mark.parametrize("kind", LAYERS)
def test_layers_compute_near_their_weights_and_are_saved(kind: str) -> None:
    torch.manual_seed(0)
    make, dtype, error = LAYERS[kind]
    layer = make()
    weight, bias = layer.weight.data.float().clone(), layer.bias.data.float().clone()
    layer = layer.cuda()
    assert_on_cuda(layer.parameters())
    inputs = torch.randn(4, 64, dtype=dtype, requires_grad=True)
    on_device = inputs.detach().cuda().requires_grad_()
    outputs = layer(on_device)
    exact = inputs.float() @ weight.t() + bias
    assert (outputs.cpu().float() - exact).norm() < error * exact.norm()
    outputs.sum().backward()
    slope = weight.sum(0).expand(4, 64)
    assert on_device.grad is not None
    assert (on_device.grad.cpu().float() - slope).norm() < 2 * error * slope.norm()
    buffer = io.BytesIO()
    torch.save(layer.state_dict(), buffer)
    saved = torch.load(io.BytesIO(buffer.getvalue()))
    again = make().cuda()
    if isinstance(again, bnb.nn.Linear4bit):  # the statistics of these make a parameter
        again.bias.data, weight_data = saved.pop("bias"), saved.pop("weight")
        again.weight = bnb.nn.Params4bit.from_prequantized(weight_data, saved, device="cuda", module=again)
    else:
        again.load_state_dict(saved)
    assert torch.equal(again(on_device), outputs)


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_optimizers_train_and_are_saved(name: str) -> None:
    torch.manual_seed(0)
    make = getattr(bnb.optim, name)
    # More than 100,000 values: the state of paged optimizers is memory of the host.
    options = {"momentum": 0.9} if name in ("SGD", "SGD8bit", "LARS") else {}
    layer = nn.Linear(400, 300).cuda()
    optimizer = make(layer.parameters(), lr=1e-3, **options)
    inputs = torch.randn(32, 400, device="cuda")

    def step(layer: nn.Module, optimizer: torch.optim.Optimizer) -> float:
        loss: torch.Tensor = layer(inputs).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        return loss.item()

    losses = [step(layer, optimizer) for _ in range(5)]
    assert losses[-1] < losses[0]
    other = copy.deepcopy(layer)
    again = make(other.parameters(), lr=1e-3, **options)
    again.load_state_dict(optimizer.state_dict())
    losses = [[step(layer, optimizer) for _ in range(2)], [step(other, again) for _ in range(2)]]
    assert losses[0] == losses[1]


def test_qlora(tmp_path: Path) -> None:
    tiny_llama().save_pretrained(tmp_path / "model")
    config = BitsAndBytesConfig(
        load_in_4bit=True,
        bnb_4bit_quant_type="nf4",
        bnb_4bit_use_double_quant=True,
        bnb_4bit_compute_dtype=torch.bfloat16,
    )

    def base() -> nn.Module:
        return AutoModelForCausalLM.from_pretrained(
            tmp_path / "model", quantization_config=config, device_map={"": 0}
        )

    model = prepare_model_for_kbit_training(base())
    model = get_peft_model(model, LoraConfig(r=4, target_modules="all-linear", task_type="CAUSAL_LM"))
    assert_on_cuda(model.parameters())
    trained = [parameter for parameter in model.parameters() if parameter.requires_grad]
    optimizer = bnb.optim.PagedAdamW8bit(trained, lr=0.02)
    tokens = torch.stack([Sentences()[index]["input_ids"] for index in range(8)]).cuda()
    losses = []
    for _ in range(10):
        loss = model(input_ids=tokens, labels=tokens).loss
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
    assert losses[-1] < 0.9 * losses[0]
    model.eval().save_pretrained(tmp_path / "adapter")
    again = PeftModel.from_pretrained(base(), tmp_path / "adapter").eval()
    with torch.no_grad():
        assert torch.equal(again(input_ids=tokens).logits, model(input_ids=tokens).logits)
