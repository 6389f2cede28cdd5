# Builds the extension, and calls its ops.
import torch
from torch.utils.cpp_extension import load

load("loom_stable", ["stable.cu"], build_directory=".", is_python_module=False)
ops = torch.ops.loom_stable
x = torch.ones(1000, device="cuda")
ops.twice(x)
side = torch.cuda.Stream()
side.wait_stream(torch.cuda.current_stream())
with torch.cuda.stream(side):
    ops.twice(x)
side.synchronize()
ops.thrice(x)
assert x.tolist() == [12.0] * 1000
ops.check(0)
try:
    ops.check(2)
except RuntimeError as error:
    assert "out of memory" in str(error), error
else:
    raise AssertionError("no error")
print("done")
