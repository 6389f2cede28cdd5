"""What the kernels of CUDA's values write to is checked as for any other op."""

import torch

from tests.raising import raises

x, i = torch.arange(12.0, device="cuda").view(3, 4), torch.arange(12, device="cuda").view(3, 4)
values, places = torch.empty(0, device="cuda"), torch.empty(0, dtype=torch.int32, device="cuda")

for op in (torch.median, torch.nanmedian, torch.mode):
    raises(
        "RuntimeError",
        "Long" if op is not torch.mode else "indices",
        lambda op=op: op(x, 1, out=(values, places)),
    )
raises("RuntimeError", "long", lambda: torch.topk(x, 2, 1, out=(values, places)))
raises("RuntimeError", "Long", lambda: torch.kthvalue(x, 2, 1, out=(values, places)))

overlapping = "refer to a single memory location"
for body in (
    lambda: torch.div(x[:-1], 3, out=x[1:]),
    lambda: torch.div(i[:-1], 3, rounding_mode="floor", out=i[1:]),
    lambda: i[1:].remainder_(i[:-1]),
    lambda: torch.fmod(i[:-1], 3, out=i[1:]),
):
    raises("RuntimeError", overlapping, body)
raises("RuntimeError", "rounding_mode", lambda: torch.div(i, i + 1, rounding_mode="up"))

# Without a dtype the out has it: the operand is converted first.
wide = torch.full((3, 4), 1.75, device="cuda")
for op, expected in ((torch.sum, [3] * 4), (torch.prod, [1] * 4)):
    assert op(wide, 0, out=torch.empty(4, dtype=torch.int64, device="cuda")).tolist() == expected
steps = torch.cumsum(wide, 0, out=torch.empty(3, 4, dtype=torch.int64, device="cuda"))
assert steps[:, 0].tolist() == [1, 2, 3]
raises(
    "RuntimeError",
    "Expected out tensor to have dtype",
    lambda: torch.sum(x, 0, dtype=torch.float64, out=torch.empty(4, device="cuda")),
)
raises("RuntimeError", "Bad in-place call", lambda: x.cumsum_(0, dtype=torch.float64))
