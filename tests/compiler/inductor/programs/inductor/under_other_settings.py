import ast
import sys

import torch
from torch._inductor import config

name, driver = ast.literal_eval(sys.argv[1])
config.compile_threads, config.cpp_cache_precompile_headers = 1, False
x = torch.arange(8.0).to(name)
y = torch.compile(lambda x: (x * 2).sin() + x.sum())(x)
# Inductor lowers these otherwise where it takes a device for one of Triton's.
z = torch.compile(lambda x: x.softmax(-1).sum() + x.std())(x)
getattr(torch, name).synchronize()
if driver != "null":
    torch.testing.assert_close(y.cpu(), (torch.arange(8.0) * 2).sin() + 28)
    torch.testing.assert_close(z.cpu(), 1 + torch.arange(8.0).std())
print(y.shape, y.device)
