"""Make the devices CUDA's, as TORCH_LOOM_DEVICE_NAME=cuda does: ``import torch_loom.as_cuda``, before torch.

Child processes have it, too.

Raises:
    AlreadyInitializedError: torch has been imported, and the devices have another name.
"""

from __future__ import annotations

from torch_loom import config

config.choose_cuda()
