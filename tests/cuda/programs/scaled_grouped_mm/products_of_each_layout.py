import torch
import torch.nn.functional as F

from tests.cuda.programs.scaled_grouped_mm.common import BF16, CASES, ROW


def expected(left, right, rows, columns, ends):
    left, right = left.float(), right.float()
    ends = [0, *ends.tolist()] if ends is not None else []
    parts = []
    for group in range(3):
        cut = slice(*ends[group : group + 2]) if ends else None
        if left.dim() == 2 and right.dim() == 2:
            row, column = rows.view(3, -1)[group], columns.view(3, -1)[group]
            product = left[:, cut] @ right[cut]
        elif left.dim() == 2:
            row, column, product = rows[cut], columns[group], left[cut] @ right[group]
        elif right.dim() == 2:
            row, column, product = rows[group], columns[cut], left[group] @ right[:, cut]
        else:
            row, column, product = rows[group], columns[group], left[group] @ right[group]
        parts.append(product * row[:, None] * column)
    if left.dim() == right.dim():
        return torch.stack(parts)
    return torch.cat(parts, 0 if left.dim() == 2 else 1)


for name, case in CASES.items():
    wanted = expected(*case)
    left, right, rows, columns, ends = (None if each is None else each.cuda() for each in case)
    for stream in (torch.cuda.current_stream(), torch.cuda.Stream()):
        stream.wait_stream(torch.cuda.default_stream())
        with torch.cuda.stream(stream):
            first = torch._scaled_grouped_mm(left, right, rows, columns, offs=ends, out_dtype=BF16)
            second = F.scaled_grouped_mm(left, right, rows, ROW, columns, ROW, offs=ends, use_fast_accum=True)
        stream.synchronize()
        assert first.dtype == second.dtype == BF16
        assert torch.equal(first, second)
        torch.testing.assert_close(first.cpu().float(), wanted, rtol=1e-2, atol=1e-2, msg=lambda m: name + m)
    fake = torch._scaled_grouped_mm(*(None if each is None else each.to("meta") for each in case))
    assert (fake.shape, fake.stride(), fake.dtype) == (first.shape, first.stride(), first.dtype)
