"""Graphs: where their memory comes from, and when it goes back."""

from __future__ import annotations

import gc

import pytest
import torch
from captured_graph import captured, ones

import torch_loom.device as loom

MIB = 2**20


def test_memory_does_not_grow_over_replays() -> None:
    gc.collect()  # what earlier tests left is not freed between the two looks
    x = ones(1024)
    graph = captured(lambda: ((x * 2).relu() + 1).softmax(0))
    graph.replay()
    before = loom.memory_stats()
    for _ in range(100):
        graph.replay()
    after = loom.memory_stats()
    for key in ("allocation.all.allocated", "reserved_bytes.all.current", "allocated_bytes.all.current"):
        assert after[key] == before[key], key


def test_memory_freed_in_the_capture_is_used_again_inside_the_pool() -> None:
    x = torch.ones(4 * MIB, device="loom").add_(0)
    loom.empty_cache()
    before = loom.memory_reserved()

    def body() -> None:
        y = x
        for _ in range(10):
            y = y + 1

    graph = captured(body)
    # Two at a time of 16 MiB each.
    assert loom.memory_reserved() - before <= 48 * MIB
    # Nobody else gets the pool's memory meanwhile.
    graph.replay()
    other = torch.zeros(4 * MIB, device="loom")
    graph.replay()
    assert other.count_nonzero().item() == 0


@pytest.mark.long
def test_memory_goes_back_when_the_last_graph_and_tensor_are_gone() -> None:
    loom.synchronize()
    gc.collect()
    loom.empty_cache()
    before = loom.memory_reserved()
    pool = loom.graph_pool_handle()
    graphs = [loom.LoomGraph(), loom.LoomGraph()]
    kept = []
    for graph in graphs:
        with loom.graph(graph, pool=pool):
            kept.append(torch.full((8 * MIB,), 3.0, device="loom"))
        assert graph.pool() == pool
    for graph in graphs:
        graph.replay()
    graphs[0].reset()
    kept.pop(0)
    loom.empty_cache()
    assert loom.memory_reserved() > before
    # The graph goes first: its tensor stays readable.
    del graphs[1], graph
    loom.empty_cache()
    assert kept[0].unique().tolist() == [3.0]
    kept.clear()
    loom.empty_cache()
    assert loom.memory_reserved() == before


def test_two_graphs_that_share_a_pool_share_memory() -> None:
    x = torch.ones(4 * MIB, device="loom").add_(0)
    stream = loom.Stream()

    def reserved(pool: tuple[int, int] | None) -> tuple[int, list[loom.LoomGraph]]:
        loom.synchronize()
        gc.collect()
        loom.empty_cache()
        before, graphs = loom.memory_reserved(), []
        for _ in range(2):
            graphs.append(captured(lambda: (x + 1) * 2, pool=pool, stream=stream))
        return loom.memory_reserved() - before, graphs

    apart, graphs = reserved(None)
    for graph in graphs:
        graph.reset()
    together, _ = reserved(loom.graph_pool_handle())
    assert together * 2 == apart
