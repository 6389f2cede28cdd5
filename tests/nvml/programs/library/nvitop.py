from nvitop import Device

first, second = Device.all()
assert (first.name(), first.index, second.index) == ("NVIDIA A100-SXM4-80GB", 0, 1)
assert first.memory_used() == 0 and first.gpu_utilization() == 0 and first.processes() == {}
assert first.cuda_compute_capability() == (8, 0) and first.fan_speed() == "N/A"
assert first.power_usage() > 0 and first.total_volatile_uncorrected_ecc_errors() == 0
