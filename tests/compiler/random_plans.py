"""Random graphs of works through balancer, placer and memory plan, without a model behind them."""

from __future__ import annotations

import random
from types import SimpleNamespace

from torch_loom.chips import load
from torch_loom.compiler.choices import (
    BALANCER_POLICIES,
    CHIP_PLACEMENT_POLICIES,
    DRAM_PLACEMENT_ALGORITHMS,
)
from torch_loom.compiler.options import Options
from torch_loom.compiler.plan import build
from torch_loom.compiler.plan.balance import Settings, epochs_of, fill_choices, place_runs
from torch_loom.compiler.plan.check import violations
from torch_loom.compiler.plan.memory import plan_queues
from torch_loom.compiler.plan.model import Edge, Plan, Work
from torch_loom.compiler.target import target_of
from torch_loom.config.boards import DEVICE_CONFIGS
from torch_loom.errors import PlacementError


def check_random_plan(draw: random.Random) -> None:
    options = Options().but(
        balancer_policy=draw.choice([p for p in BALANCER_POLICIES if p != "CNN"]),
        device_config=draw.choice([*DEVICE_CONFIGS]),
        place_on_one_row=draw.random() < 0.2,
        enable_t_streaming=draw.random() < 0.8,
        enable_auto_transposing_placement=draw.random() < 0.8,
        use_interactive_placer=draw.random() < 0.8,
        input_queues_on_host=draw.random() < 0.5,
        output_queues_on_host=draw.random() < 0.5,
        enable_forked_dram_inputs=draw.random() < 0.5,
        dram_placement_algorithm=draw.choice(DRAM_PLACEMENT_ALGORITHMS),
        chip_placement_policy=draw.choice(CHIP_PLACEMENT_POLICIES),
        backend_opt_level=draw.randint(0, 3),
    )
    target = target_of(load("wormhole_b0"), options)
    settings = Settings(
        options.balancer_policy,
        one_row=options.place_on_one_row,
        may_turn=options.enable_auto_transposing_placement,
        retries=options.use_interactive_placer,
    )
    works: list[Work] = []
    edges: list[Edge] = []
    try:
        for i in range(draw.randint(1, 40)):
            size = draw.choice([1 << 10, 1 << 16, 1 << 20, 1 << 23])
            work = Work(
                f"op{i}",
                "aten::op",
                (f"op{i}",),
                draw.choice([0, 0, size, 4 * size]),
                size,
                size,
                (draw.randint(1, 64), draw.randint(1, 64)),
                max_t=4096 if options.enable_t_streaming else 1,
            )
            busy = draw.randint(100, 10_000_000)
            fill_choices(work, target, settings, lambda cores, busy=busy: busy / cores, "It is too large.")
            for producer in draw.sample(works, min(len(works), draw.randint(0, 3))):
                edges.append(Edge(producer.name, work.name, producer.output_bytes))
            works.append(work)
        breaks = frozenset(work.name for work in works if draw.random() < 0.1)
        dram = [work.parameter_bytes / target.dram_bytes_per_cycle for work in works]
        runs = epochs_of(works, target, settings, breaks, dram, edges)
        plan = Plan(
            place_runs(works, runs, target, settings),
            edges,
            [],
            target.num_chips,
            target.rows,
            target.columns,
        )
        build._assign_chips(plan, options, breaks)
        plan_queues(
            plan,
            target,
            options,
            inputs={"x": (1 << 16, tuple(work.name for work in works[:3]))},
            outputs={"y": (1 << 16, works[-1].name)},
            parameters={
                f"{w.name}_parameters": (w.parameter_bytes, w.name) for w in works if w.parameter_bytes
            },
            pinned={},
        )
        build._finish(plan, target)
    except PlacementError as error:
        if not any(word in str(error) for word in ("SRAM", "DRAM", "cores")):
            raise AssertionError(f"it does not say what is missing: {error}") from error
        return
    assert violations(plan, target) == [], (options, SimpleNamespace(works=works))
    placed = [one.work.name for epoch in plan.epochs for one in epoch.placed]
    assert sorted(placed) == sorted(work.name for work in works)
