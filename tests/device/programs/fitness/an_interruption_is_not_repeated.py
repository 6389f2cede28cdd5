"""Ctrl-C while the devices are registered goes on to the program; a second import registers nothing."""

import sys
import warnings

from tests.raising import raises


class Interrupted:
    def find_spec(self, name, path=None, target=None):
        if name == "torch_loom.distributed":
            raise KeyboardInterrupt


sys.meta_path.insert(0, Interrupted())
try:
    import torch_loom
except KeyboardInterrupt:
    pass
else:
    raise AssertionError("the interruption is lost")
sys.meta_path.pop(0)
with warnings.catch_warnings(record=True) as said:
    warnings.simplefilter("always")
    import torch_loom
import torch

assert ["interrupted the registration" in str(each.message) for each in said] == [True]
assert torch_loom._failure is not None
words = "KeyboardInterrupt() interrupted the registration of the devices"
raises("ExtensionError", words, lambda: torch.ones(2, device="loom"))
raises("ExtensionError", words, lambda: torch.loom.memory_allocated())
assert torch.ones(2).sum() == 2
