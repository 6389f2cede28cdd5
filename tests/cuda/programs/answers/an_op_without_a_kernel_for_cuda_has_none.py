import torch

has = torch._C._dispatch_has_computed_kernel_for_dispatch_key
library = torch.library.Library("asked", "DEF")
library.define("nothing(Tensor x) -> Tensor")
library.define("host(Tensor x) -> Tensor")
library.define("device.out(Tensor x) -> Tensor")
library.define("composite(Tensor x) -> Tensor")
library.impl("host", lambda x: x + 1, "CPU")
library.impl("device.out", lambda x: x + 2, "CUDA")
library.impl("composite", lambda x: x + 3, "CompositeExplicitAutograd")
names = ("nothing", "host", "device.out", "composite")
found = {name: has(f"asked::{name}", "CUDA") for name in names}
assert found == {"nothing": False, "host": False, "device.out": True, "composite": True}, found
assert has("asked::host", "CPU") and has("aten::add.Tensor", "CUDA") and has("aten::relu", "CUDA")

# The older way to write an op asks so whether someone else has written it.
import warnings

warnings.simplefilter("ignore")
import torch._custom_ops as custom_ops


@custom_ops.custom_op("asked::twice")
def twice(x: torch.Tensor) -> torch.Tensor: ...
@custom_ops.impl("asked::twice", device_types="cuda")
def on_cuda(x):
    return x * 2


assert torch.ops.asked.twice(torch.ones(2, device="cuda")).tolist() == [2, 2]
