import ast
import sys
import warnings

import torch

lengths = ast.literal_eval(sys.argv[1])
warnings.simplefilter("ignore")
torch.manual_seed(0)
for width in ((8,), ()):
    parts = [torch.randn(length, *width) for length in lengths]
    rows = torch.randn(len(parts), 1, *width)
    nested = torch.nested.nested_tensor([part.cuda() for part in parts])
    for op in (torch.add, torch.mul):
        made = op(nested, rows.cuda()).unbind()
        for result, part, row in zip(made, parts, rows, strict=True):
            assert torch.equal(result.cpu(), op(part, row))
