"""Against slow references: outs of narrower integers, and where a bitonic network leaves equal elements."""

from __future__ import annotations

import torch

DEVICE = "cuda"


def bitonic(keys: list[int], descending: bool) -> list[int]:
    """Return the order of up to 32 elements, from SortUtils.cuh: equal ones are swapped, too."""
    places = [*range(len(keys)), *[-1] * (32 - len(keys))]  # what is no element goes to the end

    def swap(a: int, b: int, flag: bool) -> None:
        left, right = places[a], places[b]
        is_before = (
            left >= 0
            and right >= 0
            and (keys[left] > keys[right] if descending else keys[left] < keys[right])
        )
        if ((is_before and left >= 0) or right < 0) == flag:
            places[a], places[b] = right, left

    size = 2
    while size <= 32:
        stride = size // 2
        while stride:
            for thread in range(16):
                place = 2 * thread - (thread & (stride - 1))
                swap(place, place + stride, size < 32 and bool(thread & (size // 2)))
            stride //= 2
        size *= 2
    return places[: len(keys)]


torch.manual_seed(0)
a, b = (torch.randint(-(2**20), 2**20, (999,)) for _ in range(2))
for op in (torch.fmax, torch.fmin, torch.maximum, torch.minimum):
    for dtype in (torch.uint8, torch.int8, torch.int16, torch.int32):
        result = op(a.to(DEVICE), b.to(DEVICE), out=torch.empty(999, dtype=dtype, device=DEVICE))
        assert result.cpu().equal(op(a.to(dtype), b.to(dtype))), (op, dtype)

for count in (2, 3, 8, 17, 31, 32):
    keys = torch.randint(0, 4, (count,))
    for descending in (False, True):
        wanted = bitonic(keys.tolist(), descending)
        found = keys.to(DEVICE).sort(descending=descending)
        assert found.indices.tolist() == wanted, (count, descending, found.indices.tolist(), wanted)
        assert found.values.cpu().equal(keys[wanted])
