"""``torch.cuda.gds``: every name raises NotApplicableError, as there is no GPUDirect Storage."""

from torch_loom.cuda.names.not_applicable import class_, function

__all__ = ["GdsFile", "gds_deregister_buffer", "gds_register_buffer"]

GdsFile = class_("gds.GdsFile")
gds_register_buffer = function("gds.gds_register_buffer")
gds_deregister_buffer = function("gds.gds_deregister_buffer")
