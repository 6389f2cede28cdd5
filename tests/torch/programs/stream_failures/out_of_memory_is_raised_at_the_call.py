import torch

side = torch.loom.Stream()


def fails(work):
    try:
        work()
    except torch.OutOfMemoryError as error:
        assert "LOOM out of memory. Tried to allocate" in str(error)
        return True


with torch.loom.stream(side):
    assert fails(lambda: torch.empty(100 << 20, dtype=torch.uint8, device="loom"))
    x = torch.ones(4 << 20, device="loom")
    kept = []

    def fill():
        for _ in range(9):
            kept.append(x * 2)

    assert fails(fill) and len(kept) == 3
    side.synchronize()
    assert all(y[-1].item() == 2 for y in kept)
    kept.clear()
    assert (x * 2).sum().item() == 8 << 20
