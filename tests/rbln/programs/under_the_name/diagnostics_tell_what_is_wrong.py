import torch_loom  # noqa: F401
from torch_loom.compat.torch_rbln import diagnose

assert diagnose.main() == 1
