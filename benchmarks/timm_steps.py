"""Steps of timm's models under autocast, as its published benchmarks time them: traced without a device.

The models come from the packages timm and torchvision. Kernels are those of a step of the second kind that
``timm_models_3090.json`` names: ``infer`` under inference_mode, ``train`` with cross entropy and SGD with
momentum; float32 parameters under autocast to float16, channels first or last.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import torch

from benchmarks import clock_truth, traced_ops
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost import Kernel, Op, sweep
from torch_loom.chips.cost.lower import lower

GPUS = {"3090": "rtx3090", "4090": "rtx4090", "5090": "rtx5090"}
DEVICE = "loom"
# Nothing is kept on a device that executes nothing: any step fits.
SETTINGS = {"driver": "null", "memory": "1TiB", "chip": "h200"}


def traced(name: str, mode: str, layout: str, shape: list[int]) -> list[Op]:
    """Return the ops of a step of a model."""
    import timm

    if not torch.loom.is_initialized():  # type: ignore[attr-defined]
        torch.loom.configure(**SETTINGS)  # type: ignore[attr-defined]
    size = {} if shape[1] == 224 else {"img_size": shape[1]}
    memory_format = torch.channels_last if layout == "nhwc" else torch.contiguous_format
    with torch.device("meta"):
        try:
            built = timm.create_model(name, **size)
        except TypeError:
            built = timm.create_model(name)
    model = _on_device(built, memory_format).train(mode == "train")
    images = torch.empty(shape[0], 3, shape[1], shape[1], device=DEVICE)
    images = images.contiguous(memory_format=memory_format)
    if mode == "infer":
        return _recorded(lambda: _infer(model, images))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, foreach=True)
    labels = torch.zeros(shape[0], dtype=torch.long, device=DEVICE)
    return _recorded(lambda: _train(model, images, labels, optimizer), twice=True)


def _on_device(model: torch.nn.Module, memory_format: torch.memory_format) -> torch.nn.Module:
    """Give a model of the device meta parameters and buffers without contents."""

    def made(tensor: torch.Tensor) -> torch.Tensor:
        own = torch.empty(tensor.shape, dtype=tensor.dtype, device=DEVICE)
        return own.contiguous(memory_format=memory_format) if tensor.dim() == 4 else own

    known: dict[int, torch.nn.Parameter] = {}
    for module in model.modules():
        for name, tensor in module._parameters.items():
            if tensor is not None:
                new = known.setdefault(id(tensor), torch.nn.Parameter(made(tensor), tensor.requires_grad))
                module._parameters[name] = new
        for name, tensor in module._buffers.items():
            if tensor is not None:
                module._buffers[name] = made(tensor)
    return model


def _infer(model: Any, images: torch.Tensor) -> None:
    with torch.no_grad(), torch.autocast(DEVICE, torch.float16):
        model(images)


def _train(model: Any, images: torch.Tensor, labels: torch.Tensor, optimizer: Any) -> None:
    optimizer.zero_grad()
    with torch.autocast(DEVICE, torch.float16):
        loss = torch.nn.functional.cross_entropy(model(images), labels)
    loss.backward()
    optimizer.step()


def _recorded(program: Any, twice: bool = False) -> list[Op]:
    if twice:
        program()
    with traced_ops.recorded(device=DEVICE) as ops:
        program()
    return ops


def kernels(ops: list[Op]) -> Counter[Kernel]:
    """Return the kernels of a step's ops, and how often each runs."""
    return Counter(kernel for op in ops for kernel in lower(op))


def errors(path: Path) -> list[clock_truth.Found]:
    """Return the steps of a file, forecast by the chip of its card."""
    found: list[clock_truth.Found] = []
    models: dict[str, Any] = {}
    steps: dict[tuple[Any, ...], Counter[Kernel]] = {}
    for row in json.loads(path.read_bytes())["rows"]:
        chip = GPUS.get(row["gpu"])
        if chip is None:
            continue
        model = models.setdefault(chip, chip_rates.model(chips.load(chip)))
        key = (row["model"], row["mode"], row["layout"], *row["shape"])
        if key not in steps:
            try:
                steps[key] = kernels(traced(row["model"], row["mode"], row["layout"], row["shape"]))
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                print(f"{key}: cannot be traced: {str(error).partition(chr(10))[0]:.200}", file=sys.stderr)
                steps[key] = Counter()
        if not steps[key]:
            continue
        took = sum(model.time(kernel).total_ns * count for kernel, count in steps[key].items()) * 1e-6
        family = "convnet steps, others" if clock_truth.is_convnet(row["model"]) else "transformer steps"
        name = f"{row['model']} {row['mode']} {row['layout']} {row['pt']} {row['shape']}"
        half = sweep.is_fitted(clock_truth.step_key(row))
        found.append(clock_truth.Found(family, path.stem, name, half, took / row["ms"] - 1.0))
    return found
