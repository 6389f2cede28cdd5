import torch

import torch_loom  # noqa: F401
from tests.device.tape_programs import listening

x = torch.randn(4, 8, device="loom", requires_grad=True)
with listening() as tape:
    y = torch.rms_norm(x, [8])
assert len([record for record in tape.records if record["name"].startswith("aten::")]) > 3, tape.records
y.sum().backward()
wanted = torch.rms_norm(x.detach().cpu(), [8])
assert torch.allclose(y.cpu(), wanted, atol=1e-2)
