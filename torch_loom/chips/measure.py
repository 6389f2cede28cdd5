"""Times ops on a GPU and writes a sweep: what `loom chips fit` reads.

It runs under any PyTorch since 2.9 with CUDA and needs nothing of torch-loom: copy this file to the machine
with the GPU, `python measure.py --out sweep.json`. Each op is captured twenty times into a graph and the
replays are timed, so that the host has no part in it; host copies, which a graph cannot hold, are timed
between two events. Each op and dtype has its turn before any has a second, so that a run cut short, by
``--seconds`` or Ctrl-C, has measured the most that its time allows; what was measured is written.
"""

from __future__ import annotations

import argparse
import json
import math
import os
import random
import statistics
import sys
import time
from collections.abc import Callable, Iterator
from itertools import zip_longest
from pathlib import Path
from typing import Any, NamedTuple

import torch
from torch.nn import functional

REPEATS = 20
REPLAYS = 7
WARM_UPS = 3

Run = Callable[[], Any]

VECTORS = [256, 4096, 65_536, 1 << 20, 1 << 22, 1 << 24, 1 << 26]
ROWS = [[32, 128], [512, 512], [4096, 768], [8192, 1024], [4096, 4096], [65_536, 1024], [128, 50_257]]
SHAPES: dict[str, list[list[int]]] = {
    "mm": [
        *([n, n, n] for n in (128, 512, 1024, 2048, 4096, 8192)),
        *([256, 1024, 256], [1, 4096, 4096], [8, 4096, 4096], [32, 4096, 11_008], [128, 4096, 4096]),
        *([512, 768, 3072], [4096, 768, 768], [16_384, 256, 256], [2048, 8192, 1024], [333, 777, 555]),
    ],
    "linear": [[4096, 768, 3072], [8192, 1024, 1024], [512, 4096, 4096], [64, 2048, 2048]],
    "bmm": [
        [16, 128, 64, 128],
        [96, 512, 64, 512],
        [192, 128, 64, 128],
        [32, 1024, 128, 1024],
        [12, 197, 64, 197],
    ],
    **{op: [[n] for n in VECTORS] for op in ("add", "mul_scalar", "gelu", "relu_", "copy", "sum")},
    **{op: [[n] for n in (65_536, 1 << 22, 1 << 26)] for op in ("mul", "div", "relu", "tanh")},
    **dict.fromkeys(("softmax", "layer_norm", "sum_dim", "transpose_copy"), ROWS),
    "conv2d": [
        *([1, 3, 224, 64, 7, 2], [32, 3, 224, 64, 7, 2], [32, 64, 56, 64, 3, 1], [32, 128, 28, 128, 3, 1]),
        *(
            [32, 256, 14, 256, 3, 1],
            [32, 512, 7, 512, 3, 1],
            [32, 64, 56, 256, 1, 1],
            [32, 256, 56, 64, 1, 1],
        ),
        *([1, 256, 14, 256, 3, 1], [8, 320, 64, 320, 3, 1]),
    ],
    **{
        op: [
            *([32, 3, 224, 64, 7, 2], [32, 64, 56, 64, 3, 1], [32, 128, 28, 128, 3, 1]),
            *(
                [32, 256, 14, 256, 3, 1],
                [32, 256, 56, 128, 1, 2],
                [32, 256, 56, 64, 1, 1],
                [8, 320, 64, 320, 3, 1],
            ),
        ]
        for op in ("conv2d_dgrad", "conv2d_wgrad")
    },
    **{
        op: [
            [32, 96, 56, 3, 1],
            [32, 192, 28, 3, 1],
            [32, 96, 56, 7, 1],
            [32, 144, 56, 3, 2],
            [32, 960, 7, 5, 1],
        ]
        for op in ("depthwise", "depthwise_dgrad", "depthwise_wgrad")
    },
    **{
        op: [[32, 64, 112], [32, 256, 56], [32, 512, 28], [32, 2048, 7]]
        for op in ("batch_norm", "batch_norm_inference", "batch_norm_backward")
    },
    "max_pool2d": [[1, 3, 224], [32, 3, 224], [32, 64, 56], [32, 128, 28], [32, 256, 56], [8, 320, 64]],
    "sdpa": [[1, 12, 128, 64], [8, 12, 512, 64], [4, 32, 2048, 128], [1, 32, 8192, 128], [16, 12, 197, 64]],
    "sdpa_backward": [[8, 12, 512, 64], [4, 32, 2048, 128], [16, 12, 197, 64]],
    "embedding": [[30_522, 768, 4096], [50_257, 768, 8192], [128_256, 2048, 2048]],
    **{
        op: [[1 << n] for n in (10, 16, 20, 24, 27)]
        for op in ("h2d_pageable", "h2d_pinned", "d2h_pageable", "d2h_pinned")
    },
}
# A dtype of timings that tensors do not have: float32 whose products may be made in TF32.
TF32 = "tf32"
COPIES = ("h2d_pageable", "h2d_pinned", "d2h_pageable", "d2h_pinned")
QUICK_ELEMENTS = 1 << 20
SECONDS = 300.0
# Sizes that no list favours, drawn once: of each op so many.
SAMPLED = {"mm": 40, "linear": 30, "bmm": 24, "conv2d": 40, "conv2d_dgrad": 20, "conv2d_wgrad": 20}
SAMPLED |= {"depthwise": 8, "depthwise_dgrad": 8, "depthwise_wgrad": 8, "softmax": 12, "layer_norm": 12}
SAMPLED |= {"sum_dim": 8, "transpose_copy": 6, "sdpa": 10, "sdpa_backward": 6}
SEED = 0
# What one call of a sampled op computes and holds at most.
MAX_FLOPS, MAX_ELEMENTS = 2e11, 1 << 27
# Ops that take long are repeated less: each is timed for about so long.
ENOUGH_MS = 40.0
IMAGES = ("conv2d", "depthwise", "batch_norm", "max_pool2d")


class Case(NamedTuple):
    """One op to time: its shape, dtype, and how images lie (``nchw`` or ``nhwc``; empty for what is none)."""

    op: str
    shape: list[int]
    dtype: str
    layout: str = ""


def _sampled(op: str) -> list[list[int]]:
    """Return sizes drawn from the range that models have, the same at each run."""
    draw = random.Random(f"{SEED} {op}")

    def between(low: int, high: int, grain: int = 1) -> int:
        size = math.exp(draw.uniform(math.log(low), math.log(high)))
        return max(grain, round(size / grain) * grain)

    def product() -> list[int]:
        grain = draw.choice((1, 8, 64, 64))
        return [between(16, 8192, grain) for _ in range(3)]

    def convolution() -> list[int]:
        image = draw.choice((7, 14, 28, 56, 112))
        grain = draw.choice((8, 32, 32))
        sizes = between(1, 64), between(16, 1024, grain), image, between(16, 1024, grain)
        return [*sizes, draw.choice((1, 1, 3, 3, 5)), draw.choice((1, 1, 2))]

    def depthwise() -> list[int]:
        image = draw.choice((7, 14, 28, 56, 112))
        return [between(1, 64), between(32, 1152, 8), image, draw.choice((3, 5, 7)), draw.choice((1, 1, 2))]

    def attention() -> list[int]:
        heads, width = draw.choice((4, 8, 12, 16, 32)), draw.choice((32, 64, 128))
        return [between(1, 32), heads, between(64, 4096), width]

    def batched() -> list[int]:
        return [between(2, 256), between(16, 2048), draw.choice((32, 64, 80, 128)), between(16, 2048)]

    makers: dict[str, Callable[[], list[int]]] = {
        **dict.fromkeys(("mm", "linear"), product),
        "bmm": batched,
        **dict.fromkeys(("conv2d", "conv2d_dgrad", "conv2d_wgrad"), convolution),
        **dict.fromkeys(("depthwise", "depthwise_dgrad", "depthwise_wgrad"), depthwise),
        **dict.fromkeys(("sdpa", "sdpa_backward"), attention),
    }
    make = makers.get(op, lambda: [between(16, 65_536), between(32, 32_768)])
    found: list[list[int]] = []
    while len(found) < SAMPLED.get(op, 0):
        shape = make()
        if _work(op, shape) <= MAX_FLOPS and shape not in SHAPES[op] and _elements(op, shape) <= MAX_ELEMENTS:
            found.append(shape)
    return found


def _work(op: str, shape: list[int]) -> float:
    """Return about how many operations an op computes."""
    if op.startswith("conv2d"):
        count, channels, size, outputs, window, stride = shape
        return 2.0 * count * channels * outputs * (size * window / stride) ** 2
    if op.startswith("sdpa"):
        return 4.0 * shape[0] * shape[1] * shape[2] ** 2 * shape[3]
    return 2.0 * math.prod(shape) if op in ("mm", "linear", "bmm") else 0.0


def _elements(op: str, shape: list[int]) -> int:
    """Return about how many elements an op's largest operand has."""
    if op.startswith(("conv2d", "depthwise")):
        return shape[0] * max(shape[1], shape[3] if op.startswith("conv2d") else 0) * shape[2] ** 2
    if op in ("mm", "linear"):
        return max(shape[0] * shape[1], shape[1] * shape[2], shape[0] * shape[2])
    if op == "bmm":
        return shape[0] * max(shape[1] * shape[2], shape[1] * shape[3], shape[2] * shape[3])
    return math.prod(shape)


def _make(case: Case, device: torch.device) -> Run:
    """Return a function that runs the op once."""
    is_tf32 = case.dtype == TF32
    op, shape, dtype = case.op, case.shape, torch.float32 if is_tf32 else getattr(torch, case.dtype)

    def random(*sizes: int) -> torch.Tensor:
        made = torch.randn(*sizes, device=device).to(dtype)
        return made.contiguous(memory_format=torch.channels_last) if case.layout == "nhwc" else made

    if op == "mm":
        a, b = random(shape[0], shape[1]), random(shape[1], shape[2])
        return lambda: torch.mm(a, b)
    if op == "bmm":
        batch, m, k, n = shape
        a, b = random(batch, m, k), random(batch, k, n)
        return lambda: torch.bmm(a, b)
    if op.startswith(("conv2d", "depthwise")):
        return _convolution(op, shape, random)
    if op.startswith("batch_norm"):
        return _batch_norm(op, random(shape[0], shape[1], shape[2], shape[2]))
    if op == "linear":
        x, w, b = random(shape[0], shape[1]), random(shape[2], shape[1]), random(shape[2])
        return lambda: functional.linear(x, w, b)
    if op == "sdpa_backward":
        leaves = [random(*shape).requires_grad_() for _ in range(3)]
        query, key, value = leaves
        out, grad = functional.scaled_dot_product_attention(query, key, value), random(*shape)
        return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)
    if op == "max_pool2d":
        x = random(shape[0], shape[1], shape[2], shape[2])
        return lambda: functional.max_pool2d(x, 3, 2, 1)
    if op == "sdpa":
        query, key, value = random(*shape), random(*shape), random(*shape)
        return lambda: functional.scaled_dot_product_attention(query, key, value)
    if op == "embedding":
        table = random(shape[0], shape[1])
        ids = torch.randint(0, shape[0], (shape[2],), device=device)
        return lambda: functional.embedding(ids, table)
    if op in COPIES:
        return _copy(op, shape[0], device)
    x = random(*shape)
    if op in ("add", "mul", "div"):
        y = random(*shape)
        return lambda: getattr(torch, op)(x, y)
    if op == "layer_norm":
        weight, bias = random(shape[1]), random(shape[1])
        return lambda: functional.layer_norm(x, (shape[1],), weight, bias)
    simple: dict[str, Run] = {
        "mul_scalar": lambda: x * 1.5,
        "gelu": lambda: functional.gelu(x),
        "relu": lambda: torch.relu(x),
        "tanh": lambda: torch.tanh(x),
        "relu_": lambda: torch.relu_(x),
        "copy": lambda: x.clone(),
        "sum": lambda: x.sum(),
        "softmax": lambda: torch.softmax(x, -1),
        "sum_dim": lambda: x.sum(-1),
        "transpose_copy": lambda: x.t().contiguous(),
    }
    return simple[op]


def _convolution(op: str, shape: list[int], random: Callable[..., torch.Tensor]) -> Run:
    """Return a convolution ``[N, C, H, K, R, stride]``, depthwise ``[N, C, H, R, stride]``, or a gradient."""
    groups = shape[1] if op.startswith("depthwise") else 1
    count, channels, size, *_, window, stride = shape
    outputs = shape[3] if groups == 1 else channels
    x, w = random(count, channels, size, size), random(outputs, channels // groups, window, window)
    pad = window // 2
    out = functional.conv2d(x, w, stride=stride, padding=pad, groups=groups)
    if not op.endswith("grad"):
        return lambda: functional.conv2d(x, w, stride=stride, padding=pad, groups=groups)
    wanted = [op.endswith("dgrad"), op.endswith("wgrad"), False]
    where = [stride] * 2, [pad] * 2, [1, 1], False, [0, 0], groups
    return lambda: torch.ops.aten.convolution_backward(out, x, w, None, *where, wanted)


def _batch_norm(op: str, x: torch.Tensor) -> Run:
    scale, shift, mean, var = (torch.ones(x.shape[1], device=x.device) for _ in range(4))
    is_training = not op.endswith("inference")
    if not op.endswith("backward"):
        return lambda: functional.batch_norm(x, mean, var, scale, shift, is_training)
    leaves = [each.requires_grad_() for each in (x, scale, shift)]
    out = functional.batch_norm(x, mean, var, scale, shift, True)
    grad = torch.ones_like(out)
    return lambda: torch.autograd.grad(out, leaves, grad, retain_graph=True)


def _copy(op: str, size_bytes: int, device: torch.device) -> Run:
    host = torch.empty(
        size_bytes, dtype=torch.uint8, pin_memory=op.endswith("pinned") and device.type != "cpu"
    )
    there = torch.empty(size_bytes, dtype=torch.uint8, device=device)
    if op.startswith("h2d"):
        return lambda: there.copy_(host, non_blocking=op.endswith("pinned"))
    return lambda: host.copy_(there, non_blocking=op.endswith("pinned"))


class _Clock:
    """Times functions on one device."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        self.module: Any = torch.get_device_module(device)
        # Gradients run on the stream of their forward pass: what is captured lives on one that can be.
        self.stream = self.module.Stream(device)

    def eager_ms(self, run: Run) -> float:
        """Return the median time of one call, the host's part included."""
        for _ in range(WARM_UPS):
            run()
        return self._median_ms(run, REPEATS)

    def graph_ms(self, run: Run, once_ms: float) -> float:
        """Return the median time of one call on the device alone, where one takes about ``once_ms``."""
        calls = min(REPEATS, max(2, int(ENOUGH_MS / REPLAYS / once_ms)))
        graph = self.module.CUDAGraph()
        with self.module.graph(graph, stream=self.stream):
            for _ in range(calls):
                run()
        graph.replay()
        return self._median_ms(graph.replay, REPLAYS, graph.replay) / calls

    def _median_ms(self, run: Run, most: int, ahead: Run | None = None) -> float:
        """Return the median of a run's times; ``ahead`` keeps the device busy while the host launches it."""
        found: list[float] = []
        while len(found) < most and (len(found) < 3 or sum(found) < ENOUGH_MS):
            start, end = (self.module.Event(enable_timing=True) for _ in range(2))
            self.module.synchronize()
            if ahead is not None:
                ahead()
            start.record()
            run()
            end.record()
            end.synchronize()
            found.append(start.elapsed_time(end))
        return float(statistics.median(found))


def _dtypes(op: str) -> tuple[str, ...]:
    """Return the dtypes that an op is timed in: convolutions of float32 with and without TF32."""
    if op in COPIES:
        return ("uint8",)
    return (*((TF32,) if op.startswith("conv2d") else ()), "float32", "float16", "bfloat16")


def _cases(quick: bool) -> Iterator[Case]:
    """Yield what is to be timed: of each op, dtype and layout one shape, then of each the next."""
    queues: list[list[Case]] = []
    for op, listed in SHAPES.items():
        shapes = [*listed, *_sampled(op)]
        # The middle of the list first: sizes that are neither all start nor all memory.
        shapes = shapes[len(listed) // 2 :] + shapes[: len(listed) // 2]
        if quick:
            shapes = [shape for shape in listed if math.prod(shape) <= QUICK_ELEMENTS]
        for dtype in _dtypes(op):
            for layout in ("nchw", "nhwc") if op.startswith(IMAGES) else ("",):
                queues.append([Case(op, shape, dtype, layout) for shape in shapes])
    for turn in zip_longest(*queues):
        yield from (case for case in turn if case is not None)


def _kernels(run: Run) -> list[str]:
    """Return the names of the kernels that one call runs."""
    from torch.profiler import ProfilerActivity, profile

    with profile(activities=[ProfilerActivity.CUDA]) as found:
        run()
        torch.cuda.synchronize()
    return [event.name for event in found.events() or [] if event.device_type.name == "CUDA"]


def _row(clock: _Clock, case: Case) -> dict[str, Any]:
    row: dict[str, Any] = {"op": case.op, "shape": case.shape, "dtype": case.dtype}
    if case.layout:
        row["layout"] = case.layout
    with torch.backends.cudnn.flags(enabled=True, allow_tf32=case.dtype == TF32):
        run = _make(case, clock.device)
        row["ms"] = clock.eager_ms(run)
        if case.op not in COPIES:
            row["device_ms"] = clock.graph_ms(run, row["ms"])
        if clock.device.type == "cuda" and case.op.startswith(("conv2d", "depthwise")):
            row["kernels"] = _kernels(run)
    return row


def measure(device: str = "cuda", quick: bool = False, seconds: float = SECONDS) -> dict[str, Any]:
    """Return a sweep: ``{"device", "torch", "ops": [{op, shape, dtype, layout, ms, device_ms, kernels}]}``.

    Times are milliseconds; rows have the last two keys and the layout where they mean something. What fails,
    for want of memory, say, is left out, and what ``seconds`` or Ctrl-C cut off.
    """
    clock = _Clock(torch.device(device))
    rows: list[dict[str, Any]] = []
    end = time.monotonic() + seconds
    try:
        for case in _cases(quick):
            if time.monotonic() > end:
                break
            try:
                with clock.module.stream(clock.stream):
                    rows.append(_row(clock, case))
            except RuntimeError as error:
                print(f"{' '.join(map(str, case))} left out: {str(error).splitlines()[0]}", file=sys.stderr)
                clock.module.empty_cache()
    except KeyboardInterrupt:
        print(f"Stopped after {len(rows)} timings.", file=sys.stderr)
    return {"device": clock.module.get_device_name(), "torch": torch.__version__, "ops": rows}


def run(out: str, device: str = "cuda", quick: bool = False, seconds: float = SECONDS) -> int:
    """Measure and write the sweep; 1 where there is no such device, or nothing was timed."""
    kind = torch.device(device).type
    module: Any = getattr(torch, kind, None)
    if module is None or not hasattr(module, "CUDAGraph") or not module.is_available():
        print(
            f"No device {device!r} can be timed here: a GPU and a PyTorch with CUDA are needed.",
            file=sys.stderr,
        )
        return 1
    content = measure(device, quick, seconds)
    if not content["ops"]:
        return 1
    temporary = Path(f"{out}.tmp")
    temporary.write_text(json.dumps(content, indent=1), encoding="utf-8")
    os.replace(temporary, out)
    print(f"{len(content['ops'])} timings of {content['device']} in {out}")
    return 0


if __name__ == "__main__":
    parser = argparse.ArgumentParser(description="Times ops on a GPU and writes a sweep.")
    parser.add_argument("--out", required=True)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--quick", action="store_true")
    parser.add_argument("--seconds", type=float, default=SECONDS, help="stop after so long")
    options = parser.parse_args()
    sys.exit(run(options.out, options.device, options.quick, options.seconds))
