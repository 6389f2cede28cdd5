import torch

loom = torch.loom
with loom.dry_run(chip=["h200", "atom"], memory=["8GiB", 1 << 30]) as plan:
    assert [loom.get_device_name(i) for i in range(2)] == ["h200", "atom"]
    assert [loom.mem_get_info(i)[1] for i in range(2)] == [8 << 30, 1 << 30]
    torch.ones(4, device="loom:0").exp()
    assert not loom.fallback_stats()
    torch.ones(4, dtype=torch.float16, device="loom:1").exp()
    assert loom.fallback_stats() == {("aten::exp", None): 1}
    with loom.device(1):
        assert loom.get_amp_supported_dtype() == [torch.float16]
    assert loom.utilization(1) == 0 and loom.temperature(1) == 25
    used = torch.ones(1 << 20, device="loom:0")
    assert loom.device_memory_used(0) >= 4 << 20
torch.ones(4, dtype=torch.float16, device="loom:1").exp()
assert loom.fallback_stats() == {("aten::exp", None): 1}
