import torch

e4m3, e5m2, half, brain = torch.float8_e4m3fn, torch.float8_e5m2, torch.float16, torch.bfloat16
one = torch.ones((), device="cuda")


def ones(*shape, dtype=e4m3):
    return torch.ones(shape, device="cuda").to(dtype)


def integers(rows, inner, columns):
    return torch._int_mm(ones(rows, inner, dtype=torch.int8), ones(inner, columns, dtype=torch.int8))


def scaled(left, right, out_dtype=brain, bias=None, **results):
    return torch._scaled_mm(left, right, one, one, bias=bias, out_dtype=out_dtype, **results)


def fails(call, words):
    try:
        call()
    except (RuntimeError, ValueError) as error:
        assert words in str(error), str(error)
    else:
        raise AssertionError(words)
