import time

import torch
from torch.profiler import profile

import torch_loom  # noqa: F401


def check():
    with profile() as prof:
        began = time.time_ns()
        torch.ones(8, device="loom").sin()
        torch.loom.synchronize()
    rows = prof.profiler.kineto_results.events()
    names = {row.name() for row in rows}
    assert {"aten::sin", "loom::sin", "loomDeviceSynchronize"} <= names, names
    start = prof.profiler.kineto_results.trace_start_ns()
    assert began >= start
    after_ns = [row.start_ns() - start for row in rows]
    assert all(0 <= time_ns < 60e9 for time_ns in after_ns), after_ns


check()  # the clock begins within this profile
for _ in range(3):
    sum(range(200_000))
    check()
