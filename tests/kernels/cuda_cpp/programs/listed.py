"""Launches a kernel of a library three times, and one that is compiled from a text once."""

import ast
import ctypes
import os
import subprocess
import sys
from pathlib import Path

import torch
from torch.utils.cpp_extension import CUDA_HOME

import torch_loom._C

(folder,) = ast.literal_eval(sys.argv[1])
library = Path(folder, "scale.so")
source = Path(__file__).with_name("scale.cu")
nvcc = [f"{CUDA_HOME}/bin/nvcc", "-shared", "-Xcompiler", "-fPIC", "-o", library, source]
# The runtime is the extension module's, as in extensions of PyTorch.
ctypes.CDLL(torch_loom._C.__file__, os.RTLD_NOW | os.RTLD_GLOBAL)
subprocess.run(nvcc, check=True)
x = torch.ones(1000, device="cuda")
loaded = ctypes.CDLL(str(library))
for _ in range(3):
    assert loaded.scale_floats(ctypes.c_void_p(x.data_ptr()), ctypes.c_float(2), 1000) == 0
text = 'extern "C" __global__ void add(float* x) {\n  x[threadIdx.x] += 1;\n}\n'
torch.cuda._compile_kernel(text, "add")((1,), (8,), (x,))
torch.cuda.synchronize()
assert x[:9].tolist() == [9.0] * 8 + [8.0]
