import ast
import sys

import torch

from tests.reports.programs.graphs.failed import assert_failed

call = ast.literal_eval(sys.argv[1])
x = torch.ones(3, device="cuda")


def capture():
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        exec(call)


assert_failed(capture)
torch.cuda.synchronize()
assert (x + 1).tolist() == [2, 2, 2]
