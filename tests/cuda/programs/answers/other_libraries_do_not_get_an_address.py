import numpy
import torch
from torch.utils import dlpack

x = torch.arange(4.0, device="cuda")
assert x.__dlpack_device__()[0] == 12
assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
for capsule in (dlpack.to_dlpack(x), x.__dlpack__(), x.__dlpack__(max_version=(1, 0))):
    taken = dlpack.from_dlpack(capsule)
    assert taken.device == x.device and taken.tolist() == x.tolist()
assert torch.asarray(dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
assert torch.asarray(dlpack.to_dlpack(x), copy=True, dtype=torch.half).tolist() == [0, 1, 2, 3]
on_cpu = torch.ones(2)
assert torch.from_dlpack(on_cpu).equal(on_cpu) and numpy.from_dlpack(on_cpu).tolist() == [1, 1]
for refused in (lambda: numpy.from_dlpack(x), lambda: numpy.asarray(x), lambda: x.numpy()):
    try:
        refused()
    except (TypeError, BufferError, RuntimeError, ValueError):
        pass
    else:
        raise AssertionError
assert not hasattr(x, "__cuda_array_interface__")
