"""Who asks accelerate for the CPU gets it."""

from accelerate import Accelerator

assert Accelerator(cpu=True).device.type == "cpu"
