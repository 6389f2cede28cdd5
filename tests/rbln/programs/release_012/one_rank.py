import ast
import os
import sys

import torch
import torch.distributed as dist

import torch_loom  # noqa: F401

store = dist.FileStore(ast.literal_eval(sys.argv[1]), 1)
dist.init_process_group("rbln-ccl", rank=0, world_size=1, store=store)
x = torch.ones(3, dtype=torch.float16, device="rbln")
work = dist.all_reduce(x, async_op=True)
assert x.tolist() == [1.0] * 3
if os.environ["TORCH_RBLN_C10D_ASYNC"] == "0":
    assert work.is_completed()
dist.destroy_process_group()
