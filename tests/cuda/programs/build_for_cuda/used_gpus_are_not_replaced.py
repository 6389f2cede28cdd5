import torch

torch._C._cuda_init = lambda: None  # as a build for CUDA has it
torch.cuda.is_initialized = lambda: True
import torch_loom

try:
    raise torch_loom._failure
except RuntimeError as error:
    assert type(error).__name__ == "AlreadyInitializedError"
    assert "has used CUDA's own devices" in str(error)
    assert "loom run" in str(error)
assert "torch_loom._C" not in __import__("sys").modules
