import ast
import pathlib
import sys

import torch

import torch_loom  # noqa: F401
from torch_loom.cuda.release import _DEFAULT_WHEELS

str_pyproject = ast.literal_eval(sys.argv[1])
release = ".".join(torch.__version__.split(".")[:2])
assert release in _DEFAULT_WHEELS
assert f"torch=={release}.*" in pathlib.Path(str_pyproject).read_text()
