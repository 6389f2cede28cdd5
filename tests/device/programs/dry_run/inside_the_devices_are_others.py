import torch

from tests.raising import raises

loom = torch.loom
outer = torch.arange(4.0, device="loom:1")
loom.set_device(1)
loom.manual_seed(5)
stream = loom.Stream(1)
loom.set_stream(stream)
allocated = loom.memory_allocated(1)
with loom.dry_run(chip="h200", devices=8) as plan:
    assert loom.device_count() == 8 and plan.num_devices == 8
    assert loom.current_device() == 0
    assert [loom.get_device_name(i) for i in range(8)] == ["h200"] * 8
    assert loom.get_device_properties(7).driver == "null"
    assert loom.mem_get_info(7)[1] == 143771 - 616 << 20
    assert loom.current_stream() == loom.default_stream()
    assert loom.memory_allocated(1) == 0
    loom.manual_seed(6)
    loom.set_device(7)
    big = torch.empty(100 << 30, dtype=torch.uint8, device="loom:7")
    half = big[: 1 << 30].view(torch.float16)
    assert (half @ half).shape == () and half.add(1).dtype == torch.float16
    assert plan.peak_memory_bytes(7) >= 101 << 30
    assert plan.peak_memory_bytes("loom:0") == 0
assert loom.device_count() == 2 and loom.current_device() == 1
assert loom.current_stream() == stream and loom.initial_seed() == 5
assert loom.memory_allocated(1) == allocated
assert outer.sum().item() == 6
assert plan.peak_memory_bytes(7) >= 101 << 30 and plan.num_devices == 8
assert plan.peak_reserved_bytes(7) >= plan.peak_memory_bytes(7)
raises("InvalidDeviceError", "0 … 7", lambda: plan.peak_memory_bytes(8))
