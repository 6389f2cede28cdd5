import gc

import torch

from tests.raising import raises

loom = torch.loom
x = torch.ones(4, device="loom")
outer_stream, outer_event = loom.Stream(), loom.Event(enable_timing=True)
outer_event.record()
pool = loom.MemPool()
outer_graph = loom.CUDAGraph()
with loom.graph(outer_graph):
    y = x * 2
state = loom.get_rng_state()
with loom.dry_run(devices=2):
    raises("ValueError", "dry run", lambda: outer_stream.synchronize())

    def enter():
        with loom.stream(outer_stream):
            pass

    raises("ValueError", "dry run", enter)
    raises("RuntimeError", "dry run", outer_graph.replay)
    assert outer_event.query()
    loom.current_stream().wait_event(outer_event)
    inner_stream = loom.Stream(priority=-1)
    assert inner_stream.priority == -1
    with loom.stream(inner_stream):
        z = torch.rand(1000, device="loom") + 1
        inner_event = inner_stream.record_event()
    loom.current_stream().wait_stream(inner_stream)
    z.record_stream(loom.current_stream())
    loom.synchronize()
    inner_graph = loom.CUDAGraph()
    with loom.graph(inner_graph):
        w = z * 2
    inner_graph.replay()
    inner_pool = loom.MemPool()
    with loom.use_mem_pool(inner_pool):
        v = torch.empty(1 << 20, device="loom")
assert inner_event.query()
raises("RuntimeError", "dry run", inner_graph.replay)
raises("ValueError", "dry run", lambda: inner_stream.synchronize())  # noqa: F821
assert torch.equal(loom.get_rng_state(), state)
del inner_graph, inner_event, inner_pool, inner_stream, z, w, v, pool
gc.collect()
for _ in range(3):
    with loom.dry_run():
        pass
outer_graph.replay()
outer_stream.synchronize()
assert y.sum().item() == 8
