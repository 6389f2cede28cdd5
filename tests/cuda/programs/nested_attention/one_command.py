import torch
from torch.nn.functional import scaled_dot_product_attention as attention
from torch.profiler import ProfilerActivity, profile

from tests.cuda.programs.nested_attention.operands import nested, sequences

operands = [nested(sequences(seed, torch.float16), torch.strided) for seed in range(3)]
with profile(activities=[ProfilerActivity.CUDA]) as profiler, torch.no_grad():
    attention(*operands)
kernels = [e.name for e in profiler.events() if "attention" in e.name]
assert len(kernels) == 1, kernels
