import ast
import sys
import warnings

warnings.simplefilter("ignore")
import torch

try:
    torch.loom.memory_allocated()
except AttributeError as error:
    assert "TORCH_LOOM_DEVICE_NAME" in str(error) and ast.literal_eval(sys.argv[1]) in str(error), error
else:
    raise AssertionError("no error")
