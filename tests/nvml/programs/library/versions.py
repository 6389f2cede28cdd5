import ast
import sys

import pynvml

driver, version, major = ast.literal_eval(sys.argv[1])
pynvml.nvmlInit()
assert pynvml.nvmlSystemGetDriverVersion().startswith(f"{driver}.")
number = pynvml.nvmlSystemGetCudaDriverVersion()
assert f"{number // 1000}.{number % 1000 // 10}" == version
assert pynvml.nvmlSystemGetNVMLVersion().startswith(f"{major}.{driver}.")
