import pynvml

pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)
assert pynvml.nvmlDeviceGetName(device) == "atom"
assert pynvml.nvmlDeviceGetMemoryInfo(device).total == 3 << 30
for ask in (pynvml.nvmlDeviceGetEccMode, pynvml.nvmlDeviceGetNumGpuCores):
    try:
        ask(device)
    except pynvml.NVMLError_NotSupported:
        continue
    raise AssertionError(ask)
