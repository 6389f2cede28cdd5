import torch

from tests.cuda.programs.reported_memory.prepare import GIB, MIB


def refused(bytes):
    try:
        torch.empty(bytes, dtype=torch.uint8, device="cuda")
    except torch.OutOfMemoryError as error:
        return str(error)
    raise AssertionError


held = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
torch.cuda.set_per_process_memory_fraction(0.5)
text = refused(9 * GIB)
assert text.startswith(
    "CUDA out of memory. Tried to allocate 9.00 GiB. GPU 0 has a total capacity of 16.00 GiB of which "
    "15.98 GiB is free. Including non-PyTorch memory, this process has 20.00 MiB memory in use. "
    "8.00 GiB allowed; Of the allocated memory 2.00 MiB is allocated by PyTorch, and 18.00 MiB is reserved "
    "by PyTorch but unallocated. "
), text
assert text.endswith(
    "If reserved but unallocated memory is large try setting "
    "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True to avoid fragmentation.  "
    "See documentation for Memory Management  (https://docs.pytorch.org/docs/stable/notes/cuda.html"
    "#optimizing-memory-usage-with-pytorch-cuda-alloc-conf)"
), text
torch.cuda.set_per_process_memory_fraction(100 * MIB / (16 * GIB))
assert "100.00 MiB allowed; " in refused(101 * MIB)
torch.cuda.set_per_process_memory_fraction(1.0)
torch.empty(9 * GIB, dtype=torch.uint8, device="cuda")
graph = torch.cuda.CUDAGraph()
with torch.cuda.graph(graph):
    kept = torch.empty(2 * MIB, dtype=torch.uint8, device="cuda")
assert "is allocated by PyTorch, with 2.00 MiB allocated in private pools (e.g., CUDA Graphs), and " in (
    refused(20 * GIB)
)
