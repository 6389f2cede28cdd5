import io

import torch

import torch_loom  # noqa: F401

x = torch.ones(2, device="rbln:1")
assert str(x.device) == "rbln:1" and x.is_rbln
# The vendor's module is ours, but for what the vendor means otherwise.
assert torch.loom is not torch.rbln and torch.loom.empty_cache is torch.rbln.empty_cache
assert torch.rbln.current_device() == 0 and torch.accelerator.current_accelerator().type == "rbln"
assert torch.nn.Linear(2, 2).rbln()(x.rbln()).device.type == "rbln"
assert torch.from_dlpack(x).device == x.device
# A checkpoint written under the default name.
file = io.BytesIO()
torch.save(x, file, _use_new_zipfile_serialization=False)
assert file.getvalue().count(b"rbln:1") == 1
loaded = torch.load(io.BytesIO(file.getvalue().replace(b"rbln:1", b"loom:1")))
assert loaded.device == x.device and loaded.tolist() == [1, 1]
