import torch

side = torch.loom.Stream()
kept = torch.ones(4, device="loom")
rows = torch.arange(12.0).reshape(3, 4).to("loom")
good, bad = torch.tensor([1, 2], device="loom"), torch.tensor([1, 7], device="loom")
torch.loom.synchronize()
try:
    torch.add(torch.ones(2, device="loom"), torch.ones(3, device="loom"))
except RuntimeError as error:
    assert "must match" in str(error)
assert (kept + 1).sum().item() == 8, "what an op refuses at once is no failure of the device"
with torch.loom.stream(side):
    torch.index_select(rows, 0, good)
    side.synchronize()
    torch.index_select(rows, 0, bad)
    try:
        side.synchronize()
    except IndexError as error:
        assert "aten::index_select" in str(error)
    else:
        raise AssertionError("nothing failed")
for call in (side.synchronize, torch.loom.synchronize, kept.cpu, lambda: kept + 1):  # noqa: F821
    try:
        call()
    except RuntimeError as error:
        assert "until the process ends" in str(error), error
    else:
        raise AssertionError(call)
del kept, rows, good, bad
torch.loom.empty_cache()
