import ast
import sys

import torch

count, count_0, text = ast.literal_eval(sys.argv[1])
assert torch.cuda.device_count() == count and torch.cuda.is_available() == count_0
if count:
    first = text.split(",")[0]
    assert torch.cuda.get_device_properties(0).extra["physical_index"] == int(first)
