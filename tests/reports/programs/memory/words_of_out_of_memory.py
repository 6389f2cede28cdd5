import re

from tests.reports.programs.memory.fraction import error_of

text = error_of(17 << 30)
size = r"[\d.]+ \w+"
for pattern in (
    f"is free. Including non-PyTorch memory, this process has {size} memory in use. ",
    f"Of the allocated memory {size} is allocated by PyTorch, "
    f"and {size} is reserved by PyTorch but unallocated. ",
):
    assert re.search(pattern, text), text
anchor = "optimizing-memory-usage-with-pytorch-cuda-alloc-conf"
link = f"(https://docs.pytorch.org/docs/stable/notes/cuda.html#{anchor})"
assert text.rstrip().endswith(link), text
