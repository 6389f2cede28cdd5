import ast
import sys
import types
import warnings

import torch

from torch_loom.compat.bitsandbytes import KERNELS, register

NAME = ast.literal_eval(sys.argv[1])
library = types.ModuleType("bitsandbytes")
library.cextension = types.ModuleType("bitsandbytes.cextension")
library.cextension.lib = types.SimpleNamespace()
sys.modules["bitsandbytes"], sys.modules["bitsandbytes.cextension"] = library, library.cextension
blockwise = "(Tensor A, Tensor code, int blocksize) -> (Tensor, Tensor)"
for name in KERNELS:
    schema = blockwise if name == "quantize_blockwise" else "(Tensor A) -> ()"
    torch.library.define("bitsandbytes::" + name, schema)
# The library's own kernel:
torch.library.register_kernel("bitsandbytes::quantize_blockwise", NAME, lambda *_: 1 / 0)
warnings.simplefilter("error")
register()
values = torch.ones(64, device=NAME)
codes, absmax = torch.ops.bitsandbytes.quantize_blockwise(values, torch.linspace(-1, 1, 256).to(NAME), 64)
print(codes.unique().tolist(), absmax.tolist(), callable(library.cextension.lib.cget_managed_ptr))
