"""A plan of what no one machine holds: steps of a Llama-3-70B-shaped model, sharded over eight chips.

    python -m benchmarks.large_plan --chip h200

Rank 0 of FSDP (``fully_shard``) in a dry run, with checkpointed blocks, bfloat16 and AdamW. The last lines
are what the plan says, and what planning took of this machine.
"""

from __future__ import annotations

import resource
import sys
import time
from collections.abc import Sequence
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
from torch_loom.device._core.device_index import DEVICE_TYPE

COMMAND = "python -m benchmarks.large_plan"
HIDDEN, INTERMEDIATE, HEADS, SHARED_HEADS, BLOCKS, VOCABULARY = 8192, 28_672, 64, 8, 80, 128_256
GIB = 1 << 30


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


def planned(chip: str, ranks: int, num_blocks: int, length: int, steps: int) -> Any:
    """Return the plan of rank 0."""
    with torch.get_device_module(DEVICE_TYPE).dry_run(chip=chip, devices=1) as plan:
        plan.world_size = ranks
        mesh = init_device_mesh(DEVICE_TYPE, (ranks,))
        with torch.device("meta"):
            model = Llama(num_blocks).to(torch.bfloat16)
        for module in (*model.blocks, model):
            fully_shard(module, mesh=mesh)
        model.to_empty(device=DEVICE_TYPE)
        optimizer = torch.optim.AdamW(model.parameters())
        ids = torch.zeros(1, length, dtype=torch.long, device=DEVICE_TYPE)
        for _ in range(steps):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(ids).flatten(0, 1), ids.flatten()).backward()
            optimizer.step()
    return plan


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the benchmark; 1 if planning takes more than 60 s or 4 GB."""
    parser = plain_parser(__doc__)
    parser.add_argument("--ranks", type=int, default=8)
    parser.add_argument("--blocks", type=int, default=BLOCKS)
    parser.add_argument("--length", type=int, default=4096, help="tokens of a rank")
    parser.add_argument("--steps", type=int, default=2)
    options = parser.parse_args(arguments)
    began = time.perf_counter()
    plan = planned(options.chip, options.ranks, options.blocks, options.length, options.steps)
    took = time.perf_counter() - began
    for name, size in plan.memory_by_category().items():
        print(f"{name:16} {size / GIB:8.2f} GiB")
    share = plan.seconds_by_family()["collective"] / sum(plan.seconds_by_family().values())
    forecast = (
        f"peak {plan.peak_memory_bytes() / GIB:.1f} of {plan.capacity_bytes() / GIB:.1f} GiB a device, "
        f"step {plan.step_seconds[-1]:.2f} s, collectives {share:.0%} of the device time"
    )
    resident = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
    cost = f"planned in {took:.1f} s and {resident / GIB:.2f} GiB"
    print(forecast, cost, sep="\n")
    if options.write_docs:
        body = (
            f"A training step of a Llama of {options.blocks} blocks, {options.length} tokens, sharded over "
            f"{options.ranks} devices of {options.chip}: {forecast}; {cost} (targets 60 s, 4 GB)."
        )
        write_docs("large_plan", "A plan of what fits no machine", body, COMMAND)
    return 0 if took <= 60 and resident <= 4e9 else 1


if __name__ == "__main__":
    sys.exit(main())
