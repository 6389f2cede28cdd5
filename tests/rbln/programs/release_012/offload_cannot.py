import torch

import torch_loom  # noqa: F401
from tests.raising import raises


def block() -> None:
    with torch.rbln.offload():
        pass


raises("ConfigurationError", "RBLN_OFFLOAD_DIR='/proc/nothing': no files can be kept there", block)
assert torch.ones(2, device="rbln").tolist() == [1.0, 1.0]
