# A planted fault each: what is reported, and where.
import ast
import sys

import torch

from tests.kernels.programs import kernels

fault = ast.literal_eval(sys.argv[1])
x = torch.ones(1000, device="cuda")
neighbour = torch.ones(1000, device="cuda")
out = torch.zeros(2048, device="cuda")
index = torch.zeros(1024, dtype=torch.int64, device="cuda")
try:
    if fault == "missing mask":
        kernels.unmasked[(1,)](x, out, BLOCK=1024)
    elif fault == "by one":
        kernels.shifted[(1,)](x, out, 1000, 1, BLOCK=1024)
    elif fault == "in front":
        kernels.shifted[(1,)](x, out, 1000, -1, BLOCK=1024)
    elif fault == "other tensor":
        distance = (neighbour.data_ptr() - x.data_ptr()) // 4
        kernels.shifted[(1,)](x, out, 1000, distance, BLOCK=1024)
    elif fault == "wrong stride":
        kernels.rows[(4,)](torch.ones(4, 256, device="cuda"), out, 300, BLOCK=256)
    elif fault == "most programs":
        wide = torch.zeros(4000, 256, device="cuda")
        kernels.rows[(4000,)](torch.ones(100, 256, device="cuda"), wide, 256, BLOCK=256)
    elif fault == "expanded":
        kernels.rows[(4,)](torch.ones(1, device="cuda").expand(4, 256), out, 256, BLOCK=256)
    elif fault == "index":
        index[77] = 1000
        kernels.gathered[(1,)](x, index, out, BLOCK=1024)
    elif fault == "null":
        kernels.at_address[(1,)](0, out)
    elif fault == "freed":
        address = torch.ones(3_000_000, device="cuda").data_ptr()
        kernels.at_address[(1,)](address, out)
    elif fault == "assertion":
        kernels.asserted.run(torch.zeros(16, device="cuda"), grid=(1,), warmup=False, BLOCK=16, debug=True)
    elif fault == "none":
        kernels.shifted[(1,)](x, out, 999, 1, BLOCK=1024)
        kernels.rows[(4,)](torch.ones(4, 256, device="cuda"), out, 256, BLOCK=256)
        kernels.gathered[(1,)](x, index, out, BLOCK=1024)
    torch.cuda.synchronize()
except torch.AcceleratorError as error:
    print(error.error_code, error)
    try:
        torch.cuda.synchronize()
    except torch.AcceleratorError:
        print("sticky")
else:
    print("nothing")
