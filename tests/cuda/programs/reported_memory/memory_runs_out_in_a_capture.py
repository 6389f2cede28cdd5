import torch

import tests.cuda.programs.reported_memory.prepare  # noqa: F401

try:
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(2**40, device="cuda")
except Exception as error:
    while error is not None and not isinstance(error, torch.OutOfMemoryError):
        error = error.__context__
    assert "CUDA out of memory. Tried to allocate 4096.00 GiB." in str(error), error
else:
    raise AssertionError
assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]
assert not torch.cuda.is_current_stream_capturing()
