import ast
import sys

import torch

num_cores, total = ast.literal_eval(sys.argv[1])
assert torch.cuda.get_device_properties(0).multi_processor_count == num_cores
torch.manual_seed(0)
kept = torch.nn.Dropout(0.5)(torch.ones(1000, 1000, device="cuda"))
assert kept.sum().item() == total, kept.sum()
