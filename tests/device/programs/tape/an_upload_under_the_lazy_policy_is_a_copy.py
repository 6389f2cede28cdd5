import torch

from tests.device.tape_programs import listening

host = torch.ones(4, 3)
x = host.to("loom")
with listening() as tape:
    x + 1
assert tape.copies == 1, tape.copies
assert tape.begun == ["aten::add.Tensor"], tape.begun
