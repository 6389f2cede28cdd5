import ast
import sys

import torch

from torch_loom import config

expected = ast.literal_eval(sys.argv[1])
settings = config.resolve()
assert (settings.launch, settings.sanitizer) == expected, settings
x = torch.zeros(100, device="cuda")
with torch.cuda.stream(torch.cuda.Stream()):
    try:
        x.add_(1)
    except torch.cuda._sanitizer.CUDASanitizerErrors:
        assert settings.sanitizer
    else:
        assert not settings.sanitizer
