import torch
from torch.nn.functional import ScalingType

ROW, F8, BF16 = ScalingType.RowWise, torch.float8_e4m3fn, torch.bfloat16
draw = torch.Generator().manual_seed(0)


def matrix(*sizes):
    return torch.randn(*sizes, generator=draw).to(F8)


def scale(*sizes):
    return torch.rand(*sizes, generator=draw) + 0.5


def by_column(tensor):
    return tensor.transpose(-2, -1).contiguous().transpose(-2, -1)


OFFSETS = torch.tensor([16, 16, 48], dtype=torch.int32)
CASES = {  # left, right, scales of rows and of columns, where groups end
    "2d-3d": (matrix(48, 32), by_column(matrix(3, 32, 64)), scale(48), scale(3, 64), OFFSETS),
    "3d-2d": (matrix(3, 16, 32), by_column(matrix(32, 48)), scale(3, 16), scale(48), OFFSETS),
    "2d-2d": (matrix(16, 48), by_column(matrix(48, 32)), scale(3 * 16), scale(3 * 32), OFFSETS),
    "3d-3d": (matrix(3, 16, 32), by_column(matrix(3, 32, 48)), scale(3, 16), scale(3, 48), None),
}
