import torch

from tests.raising import raises

side = torch.loom.Stream()
x = torch.ones(4, device="loom")
with torch.loom.stream(side):
    for _ in range(3):
        y = x * 2
        assert side.query() and side.record_event().query()
    outside = torch.tensor([9], device="loom")
    raises("IndexError", "index out of range", lambda: torch.index_select(x, 0, outside))
