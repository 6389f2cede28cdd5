"""Runs the program that its arguments name, which must not import torch."""

import runpy
import sys

del sys.argv[0]
runpy.run_path(sys.argv[0], run_name="__main__")
assert "torch" not in sys.modules
