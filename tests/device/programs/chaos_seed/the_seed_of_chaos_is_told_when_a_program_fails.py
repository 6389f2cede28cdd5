import ast
import sys

end = ast.literal_eval(sys.argv[1])
import torch

torch.ones(1, device="loom")
exec(end)
