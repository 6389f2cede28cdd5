"""What is dispatched to CUDA's keys is ours, or what every build has."""

import re

import torch

import torch_loom._C

torch.cuda.init()  # most kernels are registered then

FOR_GPUS = re.compile(
    r"^(?:Sparse|SparseCsr|Quantized|NestedTensor)?CUDA: registered at (\S*/pytorch/\S+)", re.MULTILINE
)
found = {}
for name in torch._C._dispatch_get_all_op_names():
    for place in FOR_GPUS.findall(torch._C._dispatch_dump(name)):
        if not place.startswith("csrc") and "/c10d/Ops.cpp" not in place:
            found.setdefault(place.rpartition(":")[0], name)
assert not found, found
# As a build for the CPU: the composite kernel of PyTorch's, not one of CUDA's behind it.
assert "CompositeImplicitAutograd" in torch._C._dispatch_dump_table("aten::softmax.int").split("CUDA: ")[1]
assert all(
    name.startswith(("c10d::", "_native::", "aten::", "quantized::", "loom", "fsdp::", "symm_mem::"))
    for name in torch._C._dispatch_get_registrations_for_dispatch_key("CUDA")
)
assert not hasattr(torch._C, "_FastCudaLauncher")
assert torch.backends.cudnn.version.__module__.startswith("torch_loom")
assert torch.distributed.ProcessGroupNCCL is torch.distributed.distributed_c10d.ProcessGroupNCCL
# PyTorch's own would load NVIDIA's library.
assert torch.distributed.ProcessGroupNCCL is torch_loom._C.Communicator
assert torch.ones(2, device="cuda").sum().item() == 2
print("done")
