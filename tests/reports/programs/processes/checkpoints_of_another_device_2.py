import ast
import sys

import torch

from tests.raising import raises

file = ast.literal_eval(sys.argv[1])
raises(
    "RuntimeError",
    "Attempting to deserialize object on CUDA device 1 but torch.cuda.device_count() is 1. "
    "Please use torch.load with map_location to map your storages to an existing device.",
    lambda: torch.load(file),
)
for where in ("cuda:0", {"cuda:1": "cuda:0"}):
    loaded = torch.load(file, map_location=where)["w"]
    assert loaded.device == torch.device("cuda:0") and loaded.tolist() == [0, 1, 2, 3]
