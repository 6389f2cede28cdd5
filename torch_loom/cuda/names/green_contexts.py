"""``torch.cuda.green_contexts``: raises NotApplicableError, as a device is not divided."""

from torch_loom.cuda.names.not_applicable import class_

__all__ = ["GreenContext"]

GreenContext = class_("GreenContext")
