import ast
import sys

import pynvml

first, second = ast.literal_eval(sys.argv[1])
pynvml.nvmlInit()
devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
names = [pynvml.nvmlDeviceGetName(device) for device in devices]
assert names == [first, second], names
