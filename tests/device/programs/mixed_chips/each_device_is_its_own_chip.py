import torch

loom = torch.loom
assert loom.device_count() == 3
names = [loom.get_device_name(i) for i in range(3)]
assert names == ["h200", "loom1", "atom"], names
assert loom.get_arch_list() == names
properties = [loom.get_device_properties(i) for i in range(3)]
assert [p.extra["memory_policy"] for p in properties] == ["eager", "eager", "lazy"]
totals = [loom.mem_get_info(i)[1] for i in range(3)]
assert totals == [p.total_memory for p in properties] and len(set(totals)) == 3
assert properties[0].multi_processor_count != properties[2].multi_processor_count
# What answers for "the chip" answers for the current device.
assert torch.bfloat16 in loom.get_amp_supported_dtype()
assert loom.is_bf16_supported(including_emulation=False) and loom.is_tf32_supported()
with loom.device(2):
    assert loom.get_amp_supported_dtype() == [torch.float16]
    assert not loom.is_bf16_supported(including_emulation=False) and not loom.is_tf32_supported()
    assert loom.power_draw() < 50_000
assert loom.power_draw() > 50_000
