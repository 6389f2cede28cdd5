"""Measures steps of models on a real card: kernels' times, or peaks of memory.

    python -m benchmarks.measure_steps OUT.json [--memory] [--tf32] [--models resnet-50,gpt2] [--seconds 240]

Writes what ``clock_error`` and ``memory_error`` read: ``[{model, dtype, mode, shape, tf32, ms,
host_issue_ms, kernels, kernel_ms, by_name, by_class}]``, where ``by_name`` has the name of each kernel, how
often it ran and the microseconds that it took, and ``by_class`` sums them up; or with ``--memory`` ``[{…,
mem_after_load, reserved_after_load, steps}]``, each row by a process of its own. Weights and inputs are
random, ``cudnn.benchmark`` is off; ``tf32`` says whether convolutions of float32 may use TF32: PyTorch's
default, which is asked for here. Needs transformers. A row that fails has its error in the place of what
was measured.
"""

from __future__ import annotations

import argparse
import gc
import json
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, NamedTuple

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch

from benchmarks import hf_models, kernel_names

# The size of a library's workspace that has no default on all cards.
WORKSPACE = ("CUBLAS_WORKSPACE_CONFIG", ":4096:8")
WARM_UPS, REPEATS, ENOUGH_S = 3, 7, 2.0
MEMORY_STEPS = 3
DTYPES, MODES = ("float32", "bfloat16"), ("infer", "train")
# A batch of pictures, and of texts.
SHAPES = {True: [32, 224], False: [8, 256]}
MAX_ERROR = 300


class Case(NamedTuple):
    """A step to measure."""

    model: str
    dtype: str
    mode: str
    shape: list[int]


def cases(models: Sequence[str]) -> Iterator[Case]:
    """Yield the steps of these models, in both dtypes and modes."""
    for model in models:
        for dtype in DTYPES:
            for mode in MODES:
                yield Case(model, dtype, mode, SHAPES[model in hf_models.IMAGES])


def _step(case: Case) -> tuple[torch.nn.Module, Callable[[], None]]:
    dtype, trains = getattr(torch, case.dtype), case.mode == "train"
    model = hf_models.build(case.model, dtype, trains, "cuda")
    batch = hf_models.inputs(case.model, case.shape, torch.float32, "cuda")
    for name, value in batch.items():
        if value.is_floating_point():
            batch[name] = value.normal_().to(dtype)
        else:
            batch[name] = torch.randint_like(value, hf_models.MAX_TOKEN)
    optimizer = torch.optim.AdamW(model.parameters()) if trains else None
    return model, lambda: hf_models.step(model, batch, optimizer)


def peaks(case: Case) -> dict[str, Any]:
    """Return memory after loading, and the peaks of the first steps, in bytes."""
    memory = torch.cuda
    model, step = _step(case)
    gc.collect()
    row: dict[str, Any] = {"mem_after_load": memory.memory_allocated()}
    row["reserved_after_load"] = memory.memory_reserved()
    row["steps"] = []
    for _ in range(MEMORY_STEPS):
        memory.reset_peak_memory_stats()
        step()
        memory.synchronize()
        row["steps"].append(
            [memory.max_memory_allocated(), memory.max_memory_reserved(), memory.memory_allocated()]
        )
    del model
    return row


def times(case: Case) -> dict[str, Any]:
    """Return milliseconds of a step, of issuing it, and of its kernels, by name in microseconds."""
    from torch.profiler import ProfilerActivity, profile

    model, step = _step(case)
    for _ in range(WARM_UPS):
        step()
    whole, host, begun = [], [], time.monotonic()
    while len(whole) < REPEATS and (not whole or time.monotonic() - begun < ENOUGH_S):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        issued = time.perf_counter()
        start.record()
        step()
        end.record()
        host.append((time.perf_counter() - issued) * 1e3)
        end.synchronize()
        whole.append(start.elapsed_time(end))
    with profile(activities=[ProfilerActivity.CUDA]) as found:
        step()
        torch.cuda.synchronize()
    by_name: dict[str, list[float]] = {}
    for event in found.events() or []:
        if event.device_type.name == "CUDA":
            kernel = by_name.setdefault(event.name, [0, 0.0])
            kernel[0] += 1
            kernel[1] += event.device_time
    del model, step
    return {
        "ms": statistics.median(whole),
        "host_issue_ms": statistics.median(host),
        "kernels": int(sum(count for count, _ in by_name.values())),
        "kernel_ms": sum(took for _, took in by_name.values()) / 1e3,
        "by_name": [[name, *kernel] for name, kernel in by_name.items()],
        "by_class": kernel_names.by_class((name, int(n), took) for name, (n, took) in by_name.items()),
    }


def _measured(case: Case, measure: Callable[[Case], dict[str, Any]]) -> dict[str, Any]:
    tf32 = torch.backends.cudnn.allow_tf32
    try:
        found = measure(case)
    except (RuntimeError, ValueError, TypeError, AttributeError) as error:
        found = {"error": f"{type(error).__name__}: {error}"[:MAX_ERROR]}
    gc.collect()
    torch.cuda.empty_cache()
    return {**case._asdict(), "tf32": tf32, **found}


def _in_a_process(case: Case, tf32: bool) -> dict[str, Any]:
    command = [sys.executable, __file__, "-", "--one", json.dumps(case), *(["--tf32"] if tf32 else [])]
    environment = {WORKSPACE[0]: WORKSPACE[1], **os.environ}
    done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    if done.returncode or not done.stdout.strip():
        return {**case._asdict(), "tf32": tf32, "error": done.stderr[-MAX_ERROR:]}
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure and write; 1 where there is no card."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0] if __doc__ else "")
    parser.add_argument("out", type=Path)
    parser.add_argument("--memory", action="store_true", help="peaks of memory, not times")
    parser.add_argument("--tf32", action="store_true", help="let convolutions of float32 use TF32")
    parser.add_argument("--models", help="names, separated by commas; all by default")
    parser.add_argument("--seconds", type=float, default=240.0, help="begin no step after so long")
    parser.add_argument("--jobs", type=int, default=7, help="processes at a time, for memory")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    wanted = options.models.split(",") if options.models else list(hf_models.MODELS)
    if unknown := sorted(set(wanted) - set(hf_models.MODELS)):
        parser.error(f"unknown model {', '.join(unknown)}. Allowed: {', '.join(hf_models.MODELS)}.")
    if not torch.cuda.is_available():
        print("No card can be measured here: a GPU and a PyTorch with CUDA are needed.", file=sys.stderr)
        return 1
    torch.backends.cudnn.allow_tf32 = options.tf32
    if options.one:
        print(json.dumps(_measured(Case(*json.loads(options.one)), peaks)))
        return 0
    end = time.monotonic() + options.seconds

    def one(case: Case) -> dict[str, Any] | None:
        if time.monotonic() > end:
            return None
        return _in_a_process(case, options.tf32) if options.memory else _measured(case, times)

    # Times are taken one after the other; memory has a process for each.
    with ThreadPoolExecutor(options.jobs if options.memory else 1) as pool:
        rows = [row for row in pool.map(one, list(cases(wanted))) if row is not None]
    temporary = options.out.with_suffix(".tmp")
    temporary.write_text(json.dumps(rows), encoding="utf-8")
    temporary.replace(options.out)
    failed = sum("error" in row for row in rows)
    print(f"{len(rows)} steps of {torch.cuda.get_device_name()} in {options.out}, {failed} failed")
    return 0


if __name__ == "__main__":
    sys.exit(main())
