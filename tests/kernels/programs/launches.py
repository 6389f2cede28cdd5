# A launch is a command: on streams, in graphs and profiles, in dry runs; what Triton offers around it.
import json
import tempfile

import torch
import triton

from tests.kernels.programs import kernels

x = torch.rand(5000, device="cuda")
out = torch.zeros_like(x)
grid = (5,)
compiled = kernels.scale[grid](x, out, 5000, 2.0, BLOCK=1024)
assert torch.equal(out, x * 2)
assert compiled.asm["ttir"].startswith("#loc") and "run_program" in compiled.asm["cpp"].decode()
assert ".visible .entry scale" in compiled.asm["ptx"]

side = torch.cuda.Stream()
with torch.cuda.stream(side):
    x.add_(1)
    kernels.scale[grid](x, out, 5000, 3.0, BLOCK=1024)
side.synchronize()
assert torch.equal(out, x * 3)

graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kernels.scale[grid](x, out, 5000, 4.0, BLOCK=1024)
    total = out.sum()
x.fill_(1)
graph.replay()
assert out.eq(4).all() and total.item() == 20000

with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
    kernels.scale[grid](x, out, 5000, 5.0, BLOCK=1024)
    torch.cuda.synchronize()
with tempfile.TemporaryDirectory() as folder:
    profile.export_chrome_trace(f"{folder}/trace.json")
    with open(f"{folder}/trace.json") as trace:
        rows = [row for row in json.load(trace)["traceEvents"] if row.get("cat") == "kernel"]
assert [row["name"] for row in rows] == ["scale"], rows
assert rows[0]["args"]["grid"] == [5, 1, 1], rows
assert rows[0]["args"]["block"] == [128, 1, 1], rows

warm = kernels.one.warmup(torch.float32, torch.float32, grid=(1,))
assert warm.metadata.name == "one"

counter = torch.zeros(1, dtype=torch.int32, device="cuda")
kernels.counted[(100, 10, 3)](counter)
assert counter.item() == 3000
kernels.counted[(0,)](counter)
assert counter.item() == 3000

backwards = torch.arange(1024.0, device="cuda")
kernels.reversed_in_place[(1,)](backwards, BLOCK=1024)
assert torch.equal(backwards, torch.arange(1023.0, -1.0, -1.0, device="cuda"))

tried = []
choices = [
    triton.Config({"BLOCK": size}, pre_hook=lambda given: tried.append(given["BLOCK"])) for size in (256, 512)
]
tuned = triton.autotune(choices, key=["size"])(kernels.scale)
tuned[lambda meta: (triton.cdiv(5000, meta["BLOCK"]),)](x, out, 5000, 6.0)
assert out.eq(6).all() and set(tried) == {256}, tried
