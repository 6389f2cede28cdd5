import ast
import sys

import torch

with_a_bias, of_a_product = ast.literal_eval(sys.argv[1])
x = torch.ones(8, 8, device="cuda")
base = torch.cuda.memory_allocated()
torch.addmm(x[0], x, x)
assert torch.cuda.memory_allocated() - base == (with_a_bias or of_a_product)
x @ x
assert torch.cuda.memory_allocated() - base == of_a_product + with_a_bias
assert torch.backends.cuda.cublas_workspace_size() == of_a_product
assert torch.backends.cuda.cublaslt_workspace_size() == (with_a_bias or of_a_product)
torch._C._cuda_clearCublasWorkspaces()
assert torch.cuda.memory_allocated() == base
