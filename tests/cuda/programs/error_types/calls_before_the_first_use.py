import torch

import tests.cuda.programs.error_types.start  # noqa: F401


def fails():
    raise KeyError("planted")


torch.cuda._lazy_call(fails)
assert torch.cuda.DeferredCudaCallError.__module__ == "torch.cuda"
try:
    torch.cuda.init()
except torch.cuda.DeferredCudaCallError as error:
    assert type(error).__name__ == "DeferredCudaCallError" and isinstance(error.__cause__, KeyError)
else:
    raise AssertionError("nothing was raised")
