import copy
import io

import torch

x = torch.arange(4.0, device="cuda")
storage = torch.UntypedStorage(8, device="cuda")
assert storage.device == torch.device("cuda:0") and storage.nbytes() == 8
assert list(torch.UntypedStorage([1, 2], device="cuda").cpu()) == [1, 2]
assert torch.UntypedStorage(8).device.type == "cpu" and len(torch.UntypedStorage([1, 2])) == 2
storage.resize_(0)
assert storage.nbytes() == 0
taken = x.untyped_storage()
taken.resize_(32)
assert taken.nbytes() == 32 and x.tolist() == [0, 1, 2, 3]
assert list(taken.clone()) == list(taken.cpu()) and taken.clone().device == x.device
assert copy.deepcopy(x).tolist() == [0, 1, 2, 3]
file = io.BytesIO()
torch.save({"x": x}, file)
for where, device in ((None, "cuda:0"), ("cuda:1", "cuda:1"), ("cpu", "cpu")):
    file.seek(0)
    loaded = torch.load(file, map_location=where)["x"]
    assert str(loaded.device) == device and loaded.tolist() == [0, 1, 2, 3]
