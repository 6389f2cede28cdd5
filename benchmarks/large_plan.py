"""A plan of what no one machine holds: steps of a Llama-3-70B-shaped model, sharded over many chips.

    python -m benchmarks.large_plan --chip h200

Rank 0 of FSDP (``fully_shard``) in a dry run, with checkpointed blocks, bfloat16 and AdamW. The last lines
are what the plan says, and what planning took of this machine.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

if __package__ in (None, ""):
    sys.path.insert(0, str(Path(__file__).parent.parent))

import torch
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import fully_shard
from torch.utils.checkpoint import checkpoint

from benchmarks._common import plain_parser, write_docs
from tools.blocks import markdown_table
from torch_loom.device._core.device_index import DEVICE_TYPE

COMMAND = "python -m benchmarks.large_plan"
HIDDEN, INTERMEDIATE, HEADS, SHARED_HEADS, BLOCKS, VOCABULARY = 8192, 28_672, 64, 8, 80, 128_256
GIB = 1 << 30


@dataclass(frozen=True)
class Case:
    """A plan of one rank of so many, of which so many share a copy, with the seconds that it may take."""

    ranks: int
    shards: int
    steps: int
    limit_seconds: float


# What 16,384 devices train is in copies: a parameter has fewer rows than that.
CASES = (Case(8, 8, 2, 60), Case(64, 64, 2, 30), Case(16_384, 64, 1, 10))
LIMIT_BYTES = 4e9


class Block(nn.Module):
    """Attention of grouped heads and a gated MLP, each normalised before and added."""

    def __init__(self) -> None:
        super().__init__()
        self.width = HIDDEN // HEADS
        shared = SHARED_HEADS * self.width
        self.norms = nn.ModuleList(nn.RMSNorm(HIDDEN) for _ in range(2))
        self.heads = nn.ModuleList(nn.Linear(HIDDEN, n, bias=False) for n in (HIDDEN, shared, shared))
        self.mixed = nn.Linear(HIDDEN, HIDDEN, bias=False)
        self.gate, self.up = (nn.Linear(HIDDEN, INTERMEDIATE, bias=False) for _ in range(2))
        self.down = nn.Linear(INTERMEDIATE, HIDDEN, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Of ``[batch, time, HIDDEN]``, the same shape."""
        batch, length, _ = x.shape
        y = self.norms[0](x)
        query, key, value = (
            head(y).view(batch, length, -1, self.width).transpose(1, 2) for head in self.heads
        )
        attended = nn.functional.scaled_dot_product_attention(
            query, key, value, is_causal=True, enable_gqa=True
        )
        x = x + self.mixed(attended.transpose(1, 2).reshape(batch, length, -1))
        y = self.norms[1](x)
        return x + self.down(nn.functional.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    """The model; its blocks are computed again in the backward pass."""

    def __init__(self, num_blocks: int) -> None:
        super().__init__()
        self.embedding = nn.Embedding(VOCABULARY, HIDDEN)
        self.blocks = nn.ModuleList(Block() for _ in range(num_blocks))
        self.norm = nn.RMSNorm(HIDDEN)
        self.head = nn.Linear(HIDDEN, VOCABULARY, bias=False)

    def forward(self, ids: torch.Tensor) -> torch.Tensor:
        """Of ids ``[batch, time]``: logits ``[batch, time, VOCABULARY]``."""
        x = self.embedding(ids)
        for block in self.blocks:
            x = checkpoint(block, x, use_reentrant=False)
        return self.head(self.norm(x))


def planned(chip: str, case: Case, num_blocks: int, length: int) -> Any:
    """Return the plan of rank 0."""
    with torch.get_device_module(DEVICE_TYPE).dry_run(chip=chip, devices=1) as plan:
        plan.world_size = case.ranks
        copies = case.ranks // case.shards
        shape, names = ((copies, case.shards), ("copies", "shards")) if copies > 1 else ((case.shards,), None)
        mesh = init_device_mesh(DEVICE_TYPE, shape, mesh_dim_names=names)
        with torch.device("meta"):
            model = Llama(num_blocks).to(torch.bfloat16)
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh)
        model.to_empty(device=DEVICE_TYPE)
        optimizer = torch.optim.AdamW(model.parameters())
        ids = torch.zeros(1, length, dtype=torch.long, device=DEVICE_TYPE)
        for _ in range(case.steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
    return plan


@dataclass(frozen=True)
class Planned:
    """What a plan says, and what it took of this machine."""

    case: Case
    forecast: tuple[str, str, str]
    seconds: float
    resident_bytes: int

    @property
    def is_missed(self) -> bool:
        return self.seconds > self.case.limit_seconds or self.resident_bytes > LIMIT_BYTES


def measured(case: Case, chip: str, num_blocks: int, length: int) -> Planned:
    """Plan, printing what is found."""
    began = time.perf_counter()
    plan = planned(chip, case, num_blocks, length)
    took = time.perf_counter() - began
    for name, size in plan.memory_by_category().items():
        print(f"{name:16} {size / GIB:8.2f} GiB")
    share = plan.seconds_by_family()["collective"] / sum(plan.seconds_by_family().values())
    peak = f"{plan.peak_memory_bytes() / GIB:.1f} of {plan.capacity_bytes() / GIB:.1f} GiB"
    forecast = (peak, f"{plan.step_seconds[-1]:.2f} s", f"{share:.0%}")
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    print(f"peak {peak} a device, step {forecast[1]}, collectives {forecast[2]} of the device time")
    print(f"planned in {took:.1f} s and {resident / GIB:.2f} GiB", flush=True)
    return Planned(case, forecast, took, resident)


def docs_body(results: Sequence[Planned], chip: str, num_blocks: int, length: int) -> str:
    """Return the section for docs/performance.md."""
    lines = [
        [
            f"{each.case.ranks:,}",
            str(each.case.shards),
            str(each.case.steps),
            *each.forecast,
            f"{each.seconds:.1f}",
            f"{each.case.limit_seconds:.0f}",
            f"{each.resident_bytes / GIB:.2f}",
        ]
        for each in results
    ]
    header = [
        "devices",
        "to a copy",
        "steps",
        "peak of rank 0",
        "step",
        "of it collectives",
        "planned in s",
        "at most s",
    ]
    return (
        f"Training steps of a Llama of {num_blocks} blocks, {length} tokens a rank, sharded over devices of "
        f"{chip}: the plan of rank 0, and what planning takes of this machine (at most 4 GB).\n\n"
        + markdown_table([*header, "GiB"], lines)
    )


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if a plan takes more time or memory than it may."""
    parser = plain_parser(__doc__)
    parser.add_argument("--ranks", type=int, help="plan one of so many alone (8, 64 and 16384)")
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--length", type=int, default=4096, help="tokens of a rank")
    options = parser.parse_args(arguments)
    cases = [case for case in CASES if options.ranks in (None, case.ranks)]
    cases = cases or [Case(options.ranks, options.ranks, 2, CASES[0].limit_seconds)]
    results = [measured(case, options.chip, options.blocks, options.length) for case in cases]
    if options.write_docs:
        body = docs_body(results, options.chip, options.blocks, options.length)
        write_docs("large_plan", "A plan of what fits no machine", body, COMMAND)
    return 1 if any(each.is_missed for each in results) else 0


if __name__ == "__main__":
    sys.exit(main())
