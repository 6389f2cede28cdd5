import ctypes
import faulthandler
import inspect

import pynvml

faulthandler.enable()
pynvml.nvmlInit()
device = pynvml.nvmlDeviceGetHandleByIndex(0)


def argument(name, other):
    return device if name.lower() in ("handle", "device", "device1", "device2") else other()


reached = refused = 0
groups = ("Device", "System", "Unit", "Vgpu", "Gpu", "Gpm")
for name, function in sorted(vars(pynvml).items()):
    if not name.startswith(tuple("nvml" + group for group in groups)) or not callable(function):
        continue
    if inspect.isclass(function):
        continue
    names = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
    for other in (int, lambda: ctypes.create_string_buffer(1 << 16), lambda: b"", list):
        try:
            function(*(argument(each, other) for each in names))
        except pynvml.NVMLError as error:
            refused += 1
            assert error.value != pynvml.NVML_ERROR_UNINITIALIZED, name
        except (TypeError, ValueError, AttributeError, ctypes.ArgumentError):
            continue  # nvidia-ml-py wants another type
        reached += 1
        break
    else:
        print(name)
assert reached > 300 and refused > 200, (reached, refused)
