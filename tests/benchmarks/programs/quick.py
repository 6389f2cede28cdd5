"""Runs a module, or a script of this repository, with ``--quick`` and the other arguments."""

import ast
import runpy
import sys
from pathlib import Path

import torch

torch.set_num_threads(1)
name, *arguments = ast.literal_eval(sys.argv[1])
sys.argv[1:] = ["--quick", *arguments]
if name.endswith(".py"):
    script = Path(__file__).parents[3] / name
    sys.path[0] = str(script.parent)
    runpy.run_path(str(script), run_name="__main__")
else:
    runpy.run_module(name, run_name="__main__", alter_sys=True)
