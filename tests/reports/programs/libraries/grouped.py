import torch

torch.manual_seed(0)
offsets = torch.tensor([16, 32], device="cuda", dtype=torch.int32)
a = torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
b = torch.randn(2, 48, 64, device="cuda", dtype=torch.bfloat16).transpose(-2, -1)  # column-major


def experts(a, b):
    "Each half of the rows with its own matrix."
    return torch.cat([half.float() @ matrix.float() for half, matrix in zip(a.split(16), b, strict=True)])


a8, b8 = a.to(torch.float8_e4m3fn), b.transpose(-2, -1).to(torch.float8_e4m3fn).transpose(-2, -1)
scale_a, scale_b = torch.rand(32, device="cuda") + 0.5, torch.rand(2, 48, device="cuda") + 0.5
scaled = torch.cat(
    [
        half.float() @ matrix.float() * rows[:, None] * columns
        for half, matrix, rows, columns in zip(a8.split(16), b8, scale_a.split(16), scale_b, strict=True)
    ]
)
