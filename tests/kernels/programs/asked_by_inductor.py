"""What Inductor asks of a GPU beside its kernels: times, barriers over a grid, wrappers in C++."""

import torch
from torch._inductor import config
from torch._inductor.runtime.benchmarking import benchmarker
from triton.testing import do_bench

x = torch.randn(1000, device="cuda")
calls = []


def run():
    calls.append(1)
    return x + 1


for given in ({}, {"return_mode": "all"}):
    calls.clear()
    found = benchmarker.benchmark_gpu(run, **given)
    assert len(calls) == 2, len(calls)
    times = found if given else [found]
    assert abs(times[0] / do_bench(run) - 1) < 0.01, (times, do_bench(run))

# Programs of a launch run one after another on a core: none may wait for all.
wide = torch.randn(2, 100_000, device="cuda")
with config.patch({"triton.force_cooperative_reductions": True}):
    softmax = torch.compile(lambda value: value.softmax(-1))(wide)
assert torch.allclose(softmax, wide.softmax(-1))

with config.patch({"cpp_wrapper": True}):
    try:
        torch.compile(lambda value: value.sin() + 1)(x)
    except torch._inductor.exc.InductorError as error:
        assert "use torch.compile, without cpp_wrapper" in str(error), error
    else:
        raise AssertionError("no error")
