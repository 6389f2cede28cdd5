import torch

from tests.cuda.programs.foreach_routes.program import kernels, turned, x

assert kernels(lambda: torch._foreach_add(x, turned)) == (1, 1)
