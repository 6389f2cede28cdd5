"""Graphs in CUDA's name: the state of their pools, and the memory that random numbers take."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB"}


@pytest.mark.slow
def test_the_state_of_a_pool_is_put_back(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        c = torch._C

        def segments(pool):
            return [s for s in torch.cuda.memory_snapshot() if s["segment_pool_id"] == pool]

        def blocks(pool):
            return [(s["address"], b["size"], b["state"]) for s in segments(pool) for b in s["blocks"]]

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            outputs = [torch.ones(600, device="cuda", dtype=torch.uint8) + i for i in range(4)]
            large = torch.ones(3 << 20, device="cuda", dtype=torch.uint8)
            outputs.append(large + 1)
            del large, outputs[1]
        pool = graph.pool()
        graph.replay()
        before, stats = blocks(pool), torch.cuda.memory_stats()
        state = c._cuda_getCheckpointState(0, pool)
        addresses = [output.data_ptr() for output in outputs]
        values = [output.tolist() for output in outputs]
        assert c._cuda_checkPoolLiveAllocations(0, pool, set(addresses))

        # Another graph of the pool comes and goes; its results are stale.
        other = torch.cuda.CUDAGraph()
        with torch.cuda.graph(other, pool=pool):
            stale = torch.ones(5 << 20, device="cuda", dtype=torch.uint8)
        assert blocks(pool) != before
        try:
            c._cuda_setCheckpointPoolState(0, state, [], [])
        except RuntimeError as error:
            assert "stale tensors" in str(error)
        else:
            raise AssertionError
        c._cuda_setCheckpointPoolState(0, state, [stale.untyped_storage()._cdata], [])
        del stale, other
        assert c._cuda_checkPoolLiveAllocations(0, pool, set(addresses))

        # Freed by its own tensors, and taken again: by a storage over the memory, or by an address alone.
        kept = {key: torch.cuda.memory_stats()[key] for key in stats if key.endswith(".current")}
        storage = c._construct_storage_from_data_pointer(addresses[0], outputs[0].device, 600)
        assert not c._has_Standard_Deleter(storage._cdata)
        assert c._has_Standard_Deleter(outputs[0].untyped_storage()._cdata)
        del outputs
        c._cuda_setCheckpointPoolState(0, state, [], [storage._cdata])
        assert {key: torch.cuda.memory_stats()[key] for key in kept} == kept
        again = torch.empty(0, device="cuda", dtype=torch.uint8).set_(storage, 0, (600,), (1,))
        assert again.tolist() == values[0] and c._has_Standard_Deleter(storage._cdata)
        del again, storage
        assert c._cuda_checkPoolLiveAllocations(0, pool, set(addresses[1:]))
        for address in addresses[1:]:
            c._cuda_cudaCachingAllocator_raw_delete(address)
        assert c._cuda_checkPoolLiveAllocations(0, pool, set())
        assert not c._cuda_checkPoolLiveAllocations(0, pool, {1})
        """,
        NAME,
    )


@pytest.mark.slow
def test_pools_whose_state_is_lost(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        c = torch._C

        def raises(text, call, *arguments):
            try:
                call(*arguments)
            except ValueError as error:
                assert text in str(error), str(error)
            else:
                raise AssertionError(text)

        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            x = torch.ones(3 << 20, device="cuda") + 1
        pool = graph.pool()
        state = c._cuda_getCheckpointState(0, pool)
        del graph, x
        torch.cuda.empty_cache()
        raises("no private pool", c._cuda_setCheckpointPoolState, 0, state, [], [])
        raises("no private pool", c._cuda_getCheckpointState, 0, pool)
        # The same pool with other memory.
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph, pool=pool):
            x = torch.ones(30 << 20, device="cuda")
        before = torch.cuda.memory_stats()
        stale = [x.untyped_storage()._cdata]
        raises("has given memory back", c._cuda_setCheckpointPoolState, 0, state, stale, [])
        assert torch.cuda.memory_stats() == before
        """,
        NAME,
    )


@pytest.mark.slow
def test_graphs_that_draw_take_two_blocks_for_each_generator(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch

        def in_use():
            stats = torch.cuda.memory_stats()
            return stats["active.all.current"], stats["active_bytes.all.current"]

        torch.ones(1, device="cuda")
        before = in_use()
        default = torch.cuda.default_generators[0]
        states = [default.graphsafe_get_state(), default.clone_state(), default.clone_state()]
        graphs = [torch.cuda.CUDAGraph() for _ in range(4)]
        for graph in graphs:
            for state in states:
                graph.register_generator_state(state)
        assert in_use() == (before[0] + 6, before[1] + 6 * 512)
        del graph, graphs[1:]
        assert in_use() == (before[0] + 6, before[1] + 6 * 512)
        del graphs
        assert in_use() == before
        """,
        NAME,
    )
