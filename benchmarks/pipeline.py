"""The pipeline engine: cost per micro-batch and stage, gain of a second stage, beside PyTorch's pipelining.

    python -m benchmarks.pipeline

Prints three figures with their bounds, and predicted rates over Wormhole chips. Two stages need two idle
cores; one thread an op.
"""

from __future__ import annotations

import json
import queue
import statistics
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks import pipeline_prediction
from benchmarks._common import Parser, write_docs
from tools.blocks import markdown_table
from torch_loom.pipeline import Pipeline, Stage

COMMAND = "python -m benchmarks.pipeline"
MAX_OVERHEAD_US = 100.0
MIN_GAIN = 1.7
MAX_RATIO = 1.0
SIZE, NUM_LAYERS, BATCH = 512, 4, 64


def layers(number: int = NUM_LAYERS) -> nn.Sequential:
    """Returns one half of the model."""
    parts = [part for _ in range(number) for part in (nn.Linear(SIZE, SIZE), nn.ReLU())]
    return nn.Sequential(*parts)


def overhead_us(num_stages: int, num_microbatches: int) -> float:
    """Returns the time per micro-batch and stage where the stages have nothing to do."""
    stages = [Stage(f"s{place}", nn.Identity()) for place in range(num_stages)]
    outputs: queue.Queue[Any] = queue.Queue()
    with Pipeline(stages, queue_entries=num_microbatches) as pipeline:
        pipeline.start(training=False, outputs=outputs)
        for _ in range(num_microbatches):
            pipeline.push(torch.ones(1))
        begin = time.perf_counter()
        pipeline.forward(num_microbatches)
        pipeline.sync()
        return (time.perf_counter() - begin) / (num_microbatches * num_stages) * 1e6


def throughput(halves: Sequence[nn.Module], num_microbatches: int) -> float:
    """Returns micro-batches a second of an inference run with a stage for each of these."""
    stages = [Stage(f"s{place}", half) for place, half in enumerate(halves)]
    outputs: queue.Queue[Any] = queue.Queue()
    with Pipeline(stages, queue_entries=num_microbatches) as pipeline:
        pipeline.start(training=False, outputs=outputs)
        for _ in range(num_microbatches):
            pipeline.push(torch.ones(BATCH, SIZE))
        begin = time.perf_counter()
        pipeline.forward(num_microbatches)
        pipeline.sync()
        return num_microbatches / (time.perf_counter() - begin)


def gain(num_microbatches: int, rounds: int) -> float:
    """Returns how many times the throughput of one stage two stages of half its work reach.

    The best of several rounds for both: what else runs on the machine takes from two cores first.
    """
    first, second = layers(), layers()
    alone, both = [], []
    for _ in range(rounds):  # in turns, so that a slow minute of the machine slows both
        alone.append(throughput([nn.Sequential(first, second)], num_microbatches))
        both.append(throughput([first, second], num_microbatches))
    return max(both) / max(alone)


def our_step_seconds(num_steps: int, num_microbatches: int) -> float:
    """Returns the median time of a training step of the two-stage model, forwards and backwards."""
    losses: queue.Queue[Any] = queue.Queue()
    stages = [Stage("first", layers()), Stage("second", layers(), loss=nn.MSELoss())]
    taken = []
    with Pipeline(stages) as pipeline:
        pipeline.start(training=True, losses=losses)
        for _ in range(num_steps):
            begin = time.perf_counter()
            for _ in range(num_microbatches):
                pipeline.push(torch.ones(BATCH, SIZE))
                pipeline.push_target(torch.ones(BATCH, SIZE))
            pipeline.train(microbatches=num_microbatches, schedule="all_forward")
            for _ in range(num_microbatches):
                losses.get()
            pipeline.sync()
            taken.append(time.perf_counter() - begin)
    return statistics.median(taken)


def _peer(rank: int, store: str, num_steps: int, num_microbatches: int) -> None:
    import torch.distributed as dist
    from torch.distributed.pipelining import PipelineStage, ScheduleGPipe

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"file://{store}", rank=rank, world_size=2)
    half = layers()
    stage = PipelineStage(half, rank, 2, torch.device("cpu"))
    schedule = ScheduleGPipe(stage, num_microbatches, loss_fn=nn.MSELoss())
    x = torch.ones(BATCH * num_microbatches, SIZE)
    taken = []
    for _ in range(num_steps):
        half.zero_grad()
        dist.barrier()
        begin = time.perf_counter()
        if rank == 0:
            schedule.step(x)
        else:
            schedule.step(target=x)
        dist.barrier()
        taken.append(time.perf_counter() - begin)
    if rank == 0:
        Path(f"{store}.json").write_text(json.dumps(statistics.median(taken)))
    dist.destroy_process_group()


def peer_step_seconds(num_steps: int, num_microbatches: int) -> float:
    """Returns the same of torch.distributed.pipelining (GPipe) over two processes with gloo."""
    with tempfile.TemporaryDirectory() as folder:
        store = f"{folder}/store"
        torch.multiprocessing.spawn(_peer, (store, num_steps, num_microbatches), nprocs=2)
        return float(json.loads(Path(f"{store}.json").read_text()))


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs the command line; 1 if a figure misses its bound."""
    parser = Parser(prog=COMMAND, description=__doc__)
    parser.add_argument("--quick", action="store_true", help="few repetitions: whether it runs, not how fast")
    parser.add_argument("--write-docs", action="store_true", help="write the result into docs/performance.md")
    options = parser.parse_args(arguments)
    quick = options.quick
    rounds, count, steps = (1, 20, 2) if quick else (7, 1000, 15)
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    lines: list[str] = []

    def tell(line: str) -> None:
        print(line, flush=True)
        lines.append(line)

    try:
        held = True
        for num_stages in (1, 2, 4):
            took = statistics.median(overhead_us(num_stages, count) for _ in range(rounds))
            held &= took <= MAX_OVERHEAD_US
            per = f"{took:6.1f} us a micro-batch and stage (<= {MAX_OVERHEAD_US:.0f})"
            tell(f"overhead, {num_stages} stages: {per}")
        gained = gain(max(count // 10, 2), rounds)
        tell(f"two stages for one: {gained:.2f} x the throughput (>= {MIN_GAIN})")
        ours = statistics.median(our_step_seconds(steps, 8) for _ in range(min(rounds, 3)))
        theirs = statistics.median(peer_step_seconds(steps, 8) for _ in range(min(rounds, 3)))
        ratio = ours / theirs
        tell(
            f"a training step of 8 micro-batches: {ours * 1e3:.1f} ms, torch.distributed.pipelining "
            f"{theirs * 1e3:.1f} ms, ratio {ratio:.2f} (<= {MAX_RATIO})"
        )
        predicted = list(pipeline_prediction.rows(quick))
        print(*(pipeline_prediction.line(*row) for row in predicted), sep="\n")
        if options.write_docs:
            body = "\n".join(f"- {line}" for line in lines) + f"\n\n{pipeline_prediction.NOTE}\n\n"
            head, *rest = predicted
            write_docs("pipeline", "Pipelines", body + markdown_table(head, rest), COMMAND)
        return 0 if quick or (held and gained >= MIN_GAIN and ratio <= MAX_RATIO) else 1
    finally:
        torch.set_num_threads(threads)


if __name__ == "__main__":
    raise SystemExit(main())
