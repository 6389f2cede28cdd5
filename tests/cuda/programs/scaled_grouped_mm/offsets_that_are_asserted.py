import torch

left = torch.randn(64, 32, device="cuda", dtype=torch.bfloat16)
right = torch.randn(3, 16, 32, device="cuda", dtype=torch.bfloat16).transpose(1, 2)
ones = torch.ones(64, device="cuda")
columns = torch.ones(3, 16, device="cuda")


def wide(ends):
    return torch._grouped_mm(left, right, ends)


def narrow(ends):
    a, b = (each.to(torch.float8_e4m3fn) for each in (left, right))
    return torch._scaled_grouped_mm(a, b, ones, columns, ends, out_dtype=torch.bfloat16)


def along_the_depth(ends):
    return torch._grouped_mm(left.t(), left, ends)


def says(call, *ends):
    try:
        call(torch.tensor(ends, device="cuda", dtype=torch.int32))
        torch.cuda.synchronize()
    except torch.AcceleratorError as error:
        return str(error)
    raise AssertionError(f"{ends} are no error")


for call in (wide, narrow):
    assert call(torch.tensor([16, 32, 64], device="cuda", dtype=torch.int32)).shape == (64, 16)
    assert "greater or equal 0" in says(call, 32, 16, 64)
    assert "greater or equal 0" in says(call, -16, 32, 64)
    assert "less than tensor size" in says(call, 16, 32, 640)
assert "multiple of 16" in says(along_the_depth, 3, 10, 64)
