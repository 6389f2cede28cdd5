import torch

import torch_loom  # noqa: F401
from torch_loom.torch_version import DEFAULT_WHEELS, minor_of

assert minor_of(torch.__version__) in DEFAULT_WHEELS
