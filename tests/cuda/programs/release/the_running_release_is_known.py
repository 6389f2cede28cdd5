import torch

import torch_loom  # noqa: F401
from torch_loom.cuda.release import _DEFAULT_WHEELS

assert ".".join(torch.__version__.split(".")[:2]) in _DEFAULT_WHEELS
