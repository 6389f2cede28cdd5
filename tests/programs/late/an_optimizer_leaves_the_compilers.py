import sys

import torch

torch.optim.SGD([torch.ones(1, requires_grad=True)], lr=1.0)
assert "torch._dynamo" in sys.modules
names = ("compiler.backend", "kernels.emission", "chips")
assert [name for name in names if f"torch_loom.{name}" in sys.modules] == []
assert torch._dynamo.lookup_backend("loom").__module__ == "torch_loom.compiler.backend"
assert "loom" in torch._dynamo.list_backends()
