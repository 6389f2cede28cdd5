import torch

from tests.raising import raises


def capture():
    with torch.cuda.graph(torch.cuda.CUDAGraph()):
        torch.zeros(2**40, device="cuda")


raises("OutOfMemoryError", "CUDA out of memory. Tried to allocate 4096.00 GiB", capture)
assert not torch.cuda.is_current_stream_capturing()
assert (torch.ones(2, device="cuda") + 1).tolist() == [2, 2]
