import sys
import types

built_with = sys.modules["torch_loom._built_with"] = types.ModuleType("torch_loom._built_with")
built_with.TORCH_VERSION = "1.9.1+cpu"
import torch

assert "torch_loom._C" not in sys.modules
for use in (
    lambda: torch.ones(2, device="loom"),
    lambda: torch.ones(2).to("loom:0"),
    lambda: torch.loom.current_device(),
    lambda: torch.loom.Stream,
):
    try:
        use()
    except Exception as error:
        assert type(error).__name__ == "VersionMismatchError", repr(error)
        assert isinstance(error, RuntimeError)
        assert "1.9.1+cpu" in str(error) and torch.__version__ in str(error)
    else:
        raise AssertionError
# What does not use the device goes on.
assert not torch.loom.is_available() and not torch.accelerator.is_available()
torch.manual_seed(0)
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
# The profiler and others ask device modules what they have.
assert not hasattr(torch.loom, "synchronize")
