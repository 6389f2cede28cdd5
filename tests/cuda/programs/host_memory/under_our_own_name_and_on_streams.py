import torch

large = torch.empty(4 << 30, dtype=torch.uint8, device="loom")
with torch.loom.stream(torch.loom.Stream()):
    try:
        large.zero_()
    except torch.OutOfMemoryError as error:
        assert "the host" in str(error)
    else:
        raise AssertionError
