import ast
import os
import sys
import threading

import torch
import torch.distributed as dist

import torch_loom  # noqa: F401

store = dist.FileStore(ast.literal_eval(sys.argv[1]), 1)
dist.init_process_group("rbln-ccl", rank=0, world_size=1, store=store)
is_async = os.environ["TORCH_RBLN_C10D_ASYNC"] == "1"
assert any(thread.name.startswith("rbln-ccl") for thread in threading.enumerate()) is False  # not before one
x = torch.ones(3, dtype=torch.float16, device="rbln")
work = dist.all_reduce(x, async_op=True)
work.wait()
assert x.tolist() == [1.0] * 3
assert any(thread.name.startswith("rbln-ccl") for thread in threading.enumerate()) is is_async
dist.destroy_process_group()
