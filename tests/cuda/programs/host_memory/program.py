import torch

device = torch.accelerator.current_accelerator().type
module = getattr(torch, device)


def refused(body):
    try:
        body()
    except torch.OutOfMemoryError as error:
        assert f"{device.upper()} out of memory" in str(error), error
        assert "TORCH_LOOM_HOST_MEMORY" in str(error) and "the host" in str(error), error
    else:
        raise AssertionError("no error")


# What is never touched costs nothing.
large = torch.empty(8 << 30, dtype=torch.uint8, device=device)
torch.ones(10, device=device)
refused(large.zero_)
refused(lambda: large.fill_(3))
refused(lambda: large.view(torch.float32).normal_())
refused(lambda: large.clone())
# Many small pieces fill the host as well as one large one does.
kept = []


def fill():
    while True:
        kept.append(torch.ones(4 << 20, device=device))


refused(fill)
assert 5 < len(kept) < 60, len(kept)
count = len(kept)
kept.pop()  # room for a sum
module.empty_cache()
assert kept[-1].sum().item() == 4 << 20
kept.clear()
module.empty_cache()
kept += [torch.ones(4 << 20, device=device) for _ in range(count // 2)]
with module.dry_run() if hasattr(module, "dry_run") else torch.loom.dry_run():
    torch.empty(8 << 30, dtype=torch.uint8, device=device).zero_()
