import ast
import sys

folder = ast.literal_eval(sys.argv[1])
import site

site.addsitedir(folder)
import sys

import torch_rbln.diagnose

assert "torch" not in sys.modules
torch_rbln.diagnose.main()
