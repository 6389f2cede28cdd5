"""What a program registers before first use is not replaced by what is registered then."""

import torch

library = torch.library.Library("aten", "IMPL")
library.impl("erfinv", lambda x: x + 40, "PrivateUse1")
assert torch.erfinv(torch.zeros(2, device="loom")).tolist() == [40, 40]
assert torch.loom.is_initialized()
names = torch._C._dispatch_get_registrations_for_dispatch_key("PrivateUse1")
assert len(names) > 1000
