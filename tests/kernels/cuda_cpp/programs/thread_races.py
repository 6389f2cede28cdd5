"""Runs each function of a source in a kernel under the sanitizer, and prints what fails."""

import ast
import re
import sys

import torch

(SOURCE,) = ast.literal_eval(sys.argv[1])
# The last argument, where it is not 1.
GIVEN = {"reads_next_behind_barrier": 32, "reads_warp_behind_syncwarp": 32}
GIVEN |= {"product": 1 << 28, "wide_product": 1 << 28, "sum": 100, "unsigned_sum": 100}

NAMES = re.findall(r"void (\w+)\(", SOURCE)
# One kernel for all is compiled once.
CASES = "".join(f"case {number}: return {name}(v, out, by);" for number, name in enumerate(NAMES))
KERNEL = f"__global__ void run(const int* v, int* out, int by, int which) {{ switch (which) {{{CASES}}} }}"
run = torch.cuda._compile_kernel(SOURCE + KERNEL, "run")

v = torch.arange(64, dtype=torch.int32, device="cuda")
for number, name in enumerate(NAMES):
    out = torch.zeros(192, dtype=torch.int32, device="cuda")
    try:
        run((1,), (64,), (v, out, GIVEN.get(name, 1), number))
        torch.cuda.synchronize()
    except torch.AcceleratorError as error:
        print(f"{name}: {error}".replace("\n", " | "))
    else:
        print(f"{name}: nothing {out.sum().item()}")
