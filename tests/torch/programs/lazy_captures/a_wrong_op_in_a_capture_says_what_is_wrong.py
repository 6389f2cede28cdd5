import torch

a, b = torch.ones(3, device="loom"), torch.ones(4, device="loom")
try:
    with torch.loom.graph(torch.loom.CUDAGraph()):
        a + b
except RuntimeError as error:
    assert "(3) must match the size of tensor b (4)" in str(error), error
else:
    raise AssertionError("shapes that do not match were captured")
assert (a + 1).tolist() == [2.0] * 3
