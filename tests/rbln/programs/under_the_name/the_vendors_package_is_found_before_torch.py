import ast
import sys

folder = ast.literal_eval(sys.argv[1])
import site

site.addsitedir(folder)
import torch
import torch_rbln

print(torch_rbln.device is torch.rbln)
