import torch

from tests.cuda.programs.scaled_grouped_mm.common import CASES

left, right, rows, columns, ends = (each.cuda() for each in CASES["2d-3d"])


def fails(text, error=ValueError, left=left, right=right, rows=rows, columns=columns, offs=ends, **more):
    for call in (
        lambda: torch._scaled_grouped_mm(left, right, rows, columns, offs=offs, **more),
        lambda: torch._scaled_grouped_mm_v2(
            left, right, [rows], [1], [], [columns], [1], [], offs, more.get("bias"), more.get("out_dtype")
        ),
    ):
        try:
            call()
        except error as raised:
            assert text in str(raised), raised
        else:
            raise AssertionError(text)
