"""Steps of timm's models under autocast, as its published benchmarks time them: traced without a device.

The models come from the packages timm and torchvision. Kernels are those of a step of the second kind that
``timm_models_3090.json`` names: ``infer`` under inference_mode, ``train`` with cross entropy and SGD with
momentum; float32 parameters under autocast to float16, channels first or last.
"""

from __future__ import annotations

import json
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch

from benchmarks import clock_truth, traced_ops
from torch_loom import chips
from torch_loom.chips import rates as chip_rates
from torch_loom.chips.cost import CostModel, Kernel, Op, Tensor, sweep
from torch_loom.chips.cost.fit import Timing
from torch_loom.chips.cost.lower import lower

GPUS = {"3090": "rtx3090", "4090": "rtx4090", "5090": "rtx5090"}
# PyTorch 2.0 has the first attention in one kernel.
BEFORE_FUSED, FUSED = "pt1", "_scaled_dot_product"
DEVICE = "loom"
# Nothing is kept on a device that executes nothing: any step fits.
SETTINGS = {"driver": "null", "memory": "1TiB", "chip": "h200"}


def traced(name: str, mode: str, layout: str, shape: list[int], is_fused: bool = True) -> list[Op]:
    """Return the ops of a step of a model; its attention in one kernel, or before PyTorch 2.0 in several."""
    import timm

    timm.layers.set_fused_attn(is_fused)
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


class Traces:
    """Ops of steps that were traced before, kept in a file: tracing all models takes a quarter of an hour."""

    def __init__(self, path: Path | None) -> None:
        self.path = path
        self.known: dict[str, list[Any]] = {}
        if path is not None and path.exists():
            self.known = json.loads(path.read_bytes())

    def ops(self, row: dict[str, Any]) -> list[tuple[Op, int]]:
        """Return the ops of a step and how often each runs; none where it cannot be traced."""
        step = (row["model"], row["mode"], row["layout"], row["shape"])
        found = self._ops(step)
        if row["pt"].startswith(BEFORE_FUSED) and any(op.name.startswith(FUSED) for op, _ in found):
            return self._ops((*step, False))
        return found

    def _ops(self, step: tuple[Any, ...]) -> list[tuple[Op, int]]:
        key = json.dumps(step)
        if key not in self.known:
            try:
                self.known[key] = packed(traced(*step))
            except (RuntimeError, TypeError, ValueError, NotImplementedError) as error:
                print(f"{key}: cannot be traced: {str(error).partition(chr(10))[0]:.200}", file=sys.stderr)
                self.known[key] = []
        return [(unpacked(op), count) for op, count in self.known[key]]

    def save(self) -> None:
        """Write what was traced."""
        if self.path is not None:
            self.path.write_text(json.dumps(self.known), encoding="utf-8")


def packed(ops: Sequence[Op]) -> list[Any]:
    """Return each different op and how often it occurs, as JSON keeps it; arguments but plain data go."""
    counts: dict[str, int] = Counter()
    for op in ops:
        plain = {
            name: value
            for name, value in op.attributes.items()
            if value is None or isinstance(value, (bool, int, float, str, list, tuple))
        }
        counts[json.dumps(op._replace(attributes=plain), default=str)] += 1
    return [[json.loads(text), count] for text, count in counts.items()]


def unpacked(fields: Sequence[Any]) -> Op:
    """Return the op of what :func:`packed` made."""
    name, inputs, outputs, attributes, lists = fields
    operands = [
        tuple(Tensor(dtype, tuple(shape), tuple(strides)) for dtype, shape, strides in each)
        for each in (inputs, outputs)
    ]
    return Op(name, operands[0], operands[1], attributes, tuple(lists))


def timings(path: Path, traces: Traces) -> list[tuple[dict[str, Any], Timing]]:
    """Return the rows of a file whose card has a chip and whose step can be traced, with their kernels."""
    found = []
    steps: dict[str, dict[Kernel, int]] = {}
    for row in json.loads(path.read_bytes())["rows"]:
        if row["gpu"] not in GPUS:
            continue
        name = f"{row['model']} {row['mode']} {row['layout']} {row['shape']} {row['pt']}"
        if name not in steps:
            counts: Counter[Kernel] = Counter()
            for op, count in traces.ops(row):
                for kernel in lower(op):
                    counts[kernel] += count
            steps[name] = dict(counts)
        if steps[name]:
            found.append((row, Timing(name, steps[name], row["ms"] * 1e6)))
    traces.save()
    return found


def errors(path: Path, traces: Traces) -> list[clock_truth.Found]:
    """Return the steps of a file, forecast by the chip of its card."""
    found: list[clock_truth.Found] = []
    models: dict[str, CostModel] = {}
    for row, timing in timings(path, traces):
        chip = GPUS[row["gpu"]]
        model = models.setdefault(chip, chip_rates.model(chips.load(chip)))
        took = sum(model.time(kernel).total_ns * count for kernel, count in timing.kernels.items())
        family = "convnet steps, others" if clock_truth.is_convnet(row["model"]) else "transformer steps"
        half = sweep.is_fitted(clock_truth.step_key(row))
        error = took / timing.took_ns - 1.0
        found.append(clock_truth.Found(family, path.stem, timing.name, half, error, timing.took_ns))
    return found
