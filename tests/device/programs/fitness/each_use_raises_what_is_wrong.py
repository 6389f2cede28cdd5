"""`import torch_loom` of a package that does not fit: one warning, and the same error at each use."""

import ast
import sys
import warnings

folder, kind, words = ast.literal_eval(sys.argv[1])
sys.path.insert(0, folder)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch_loom

    # As by the entry point, which comes later.
    torch_loom._autoload()
import torch

assert torch_loom.__file__.startswith(folder), torch_loom.__file__
assert [str(one.message).count("torch-loom is not available") for one in said] == [1], said
for word in words:
    assert word in str(said[0].message), (word, str(said[0].message))
assert "torch_loom.device" not in sys.modules
for use in (
    lambda: torch.ones(2, device="loom"),
    lambda: torch.ones(2).to("loom:0"),
    lambda: torch.loom.current_device(),
    lambda: torch.loom.Stream,
):
    try:
        use()
    except Exception as error:
        assert type(error).__name__ == kind, repr(error)
        for word in words:
            assert word in str(error), (word, str(error))
    else:
        raise AssertionError("nothing is raised")
# What does not use the device goes on.
assert not torch.loom.is_available()
torch.manual_seed(0)
# The profiler and others ask device modules what they have.
assert not hasattr(torch.loom, "synchronize")
x = torch.ones(2, requires_grad=True)
(x * x).sum().backward()
assert x.grad.tolist() == [2, 2]
