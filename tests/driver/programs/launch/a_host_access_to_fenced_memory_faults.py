import ctypes

from torch_loom._C_testing import driver

chip = driver.create("virtual", 1, 1 << 24, protect=True)
address = chip.allocate(0, 64)
ctypes.memset(chip.locate(address).engine_address, 1, 64)
print("reached", flush=True)
ctypes.memset(address, 1, 64)
