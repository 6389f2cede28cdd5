# Each case of a file of planted faults: its repaired twin, which is silent, then the fault, whose report is
# printed after the case's name and the marked line.
import ast
import importlib
import sys

import torch

name, wanted = ast.literal_eval(sys.argv[1])
module = importlib.import_module(f"tests.kernels.programs.planted.{name}")
with open(module.__file__) as file:
    lines = file.read().splitlines()
for case in wanted or module.CASES:
    run = module.CASES[case]
    run(False)
    torch.cuda.synchronize()
    mark = getattr(module, "MARKS", {}).get(case, case)
    marked = [number for number, line in enumerate(lines, 1) if line.endswith(f"# {mark}")]
    try:
        run(True)
        torch.cuda.synchronize()
    except Exception as error:
        shown = f"{type(error).__name__}: {error}".replace("\n", " | ")
    else:
        shown = "nothing"
    print(f"{case}\t{marked}\t{shown}")
