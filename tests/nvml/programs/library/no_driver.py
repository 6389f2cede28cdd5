import pynvml

try:
    pynvml.nvmlInit()
except pynvml.NVMLError as error:
    assert error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
else:
    raise AssertionError
