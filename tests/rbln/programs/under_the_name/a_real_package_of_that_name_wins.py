import ast
import sys

from torch_loom import compat

folder = ast.literal_eval(sys.argv[1])
compat._autoload()
sys.path.insert(0, folder)
import torch_rbln

assert torch_rbln.WHOSE == "the vendor"
