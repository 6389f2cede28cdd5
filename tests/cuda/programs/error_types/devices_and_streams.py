import torch

from tests.cuda.programs.error_types.start import kind

x = torch.ones(2, device="cuda")
for call in (lambda: torch.cuda.set_device(9), lambda: torch.cuda.synchronize(9), lambda: x.to("cuda:9")):
    assert kind(call) is torch.AcceleratorError
try:
    torch.cuda.set_device(9)
except RuntimeError as error:
    assert error.error_code == 101 and str(error).startswith("CUDA error: invalid device ordinal")
assert kind(lambda: torch.cuda.get_device_properties(9)) is AssertionError
assert kind(lambda: torch.cuda.can_device_access_peer(0, 9)) is AssertionError
assert kind(lambda: torch.cuda.synchronize("cpu")) is ValueError
assert kind(lambda: torch.cuda.Stream(device="cpu")) is ValueError
torch.cuda.set_sync_debug_mode("error")
try:
    assert kind(x.sum().item) is RuntimeError
finally:
    torch.cuda.set_sync_debug_mode("default")
