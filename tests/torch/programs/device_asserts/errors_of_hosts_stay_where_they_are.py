import torch

from tests.torch.programs.device_asserts.start import i, x


def says(kind, call):
    try:
        call()
    except kind:
        return
    raise AssertionError("no error")


says(RuntimeError, lambda: x @ x)
says(IndexError, lambda: x.index_select(5, i))
says(RuntimeError, lambda: x.gather(0, i))
says(RuntimeError, lambda: x.index_select(0, i.double()))
says(torch.linalg.LinAlgError, lambda: torch.linalg.cholesky(-torch.eye(3, device="loom")))
says(RuntimeError, lambda: torch.normal(x, -x))
says(RuntimeError, lambda: torch.bincount(-i))
says(RuntimeError, lambda: torch.segment_reduce(x.flatten(), "sum", lengths=i))
says(RuntimeError, lambda: x.to("meta") + x)
assert (x + 1).sum().item() == 24
