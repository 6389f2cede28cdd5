import torch

x, scalar = torch.full((3,), 3.0, device="cuda"), torch.ones((), device="cuda")
number = torch.tensor(2.0)
names = "maximum minimum mul add sub div pow fmod remainder atan2 le lt eq fmax hypot"
for function in (getattr(torch, name) for name in names.split()):
    for one, other in ((x, number), (number, x), (scalar, number)):
        found, expected = function(one, other), function(one.cpu(), other.cpu())
        assert found.is_cuda and torch.allclose(found.cpu().float(), expected.float()), function
for one, other, wrong in ((x, number, "other is on cpu"), (number, x, "other is on cuda:0")):
    try:
        torch.logaddexp(one, other)
    except RuntimeError as error:
        assert wrong in str(error) and "method wrapper_CUDA_logaddexp)" in str(error), error
    else:
        raise AssertionError
