import math

import torch

import torch_loom
from tests.raising import raises

rbln = torch.rbln
assert rbln.is_dummy_device() and rbln.is_available()
assert (rbln.device_count(), rbln.physical_device_count()) == (2, 0)
t = torch.tensor(-math.inf, device="rbln:0")
assert math.isinf(t.cpu().item()) and t.device.type == "rbln"
assert torch.zeros(4, device="rbln:1").cpu().tolist() == [0.0] * 4
assert torch.full((2, 2), 7.0, device="rbln").cpu().tolist() == [[7.0, 7.0], [7.0, 7.0]]
assert torch.arange(0, 5, device="rbln").cpu().tolist() == [0, 1, 2, 3, 4]
assert torch.tensor(42, device="rbln").item() == 42
x = torch.tensor([1.0, 2.0, 3.0], device="rbln")
assert x.clone().to("rbln:1").cpu().tolist() == x.tolist() == [1.0, 2.0, 3.0]
assert rbln.memory_stats()["lazy.pending_tensors"] > 0
with rbln.device(1):
    assert torch.ones(1, device="rbln").device.index == 1

SENTENCE = "RBLN_DUMMY_DEVICE has no NPU and cannot execute "
for run, what in (
    (lambda: x + 1, "aten::add"),
    (lambda: x.exp(), "aten::exp"),
    (lambda: torch.mm(torch.ones(2, 2, device="rbln"), torch.ones(2, 2, device="rbln")), "aten::mm"),
    (lambda: torch.compile(lambda x: x.relu(), backend="rbln")(x), "a compiled graph"),
):
    try:
        run()
    except RuntimeError as error:
        assert SENTENCE + what in str(error), error
    else:
        raise AssertionError(what)
raises("DummyDeviceError", "tells what an NPU is", rbln.get_device_properties)
raises("DummyDeviceError", "mem_get_info()", rbln.mem_get_info)
raises("DummyDeviceError", "mem_get_info_per_chiplet()", rbln.mem_get_info_per_chiplet)
assert rbln.memory_summary().count("\n") > 5
assert issubclass(torch_loom.errors.DummyDeviceError, RuntimeError)
