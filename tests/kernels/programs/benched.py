# triton.testing.do_bench: its time is the kernel's on the chip, whatever the host takes to launch it.
import torch
from triton.testing import do_bench

from tests.kernels.programs import kernels

x, out = torch.ones(1 << 20, device="cuda"), torch.zeros(1 << 20, device="cuda")


def launch():
    kernels.scale[(1024,)](x, out, 1 << 20, 2.0, BLOCK=1024)


def alone():
    """Milliseconds of one of a row of launches that the host has issued before the first begins."""
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    launch()
    torch.cuda._sleep(10_000_000)
    begin.record()
    for _ in range(20):
        launch()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) / 20


expected = alone()
torch.cuda.reset_peak_memory_stats()
before = torch.cuda.memory_allocated()
found = do_bench(launch, warmup=1, rep=1, return_mode="median")
taken = torch.cuda.max_memory_allocated() - before
print(f"{expected * 1e3:.2f} {found * 1e3:.2f} us, {taken} bytes")
assert abs(found - expected) < 0.3 * expected
assert taken < 1 << 20, "what empties the cache of a GPU takes no memory here"
