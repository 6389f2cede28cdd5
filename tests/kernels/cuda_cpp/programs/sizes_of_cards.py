"""What CUDA's runtime library says of a card is what PyTorch says of it."""

import ast
import ctypes
import sys

import torch

path, threads = ast.literal_eval(sys.argv[1])
known = torch.cuda.get_device_properties(0)
program = ctypes.CDLL(path)
program.sizes.restype = ctypes.c_char_p
found = (ctypes.c_int64 * 8)()
assert program.sizes(found) is None
assert list(found) == [
    known.max_threads_per_multi_processor,
    known.L2_cache_size,
    known.shared_memory_per_block_optin,
    known.memory_bus_width,
    known.regs_per_multiprocessor,
    known.shared_memory_per_multiprocessor,
    known.memory_clock_rate,
    threads // 512,
], (list(found), known)
assert known.max_threads_per_multi_processor == threads

program.texture_sizes.restype = ctypes.c_char_p
sizes = (ctypes.c_int * 8)()
assert (said := program.texture_sizes(sizes)) is None, said
# CUDA C++ Programming Guide, "Technical Specifications per Compute Capability".
ratios = {(3, 7): 3, (6, 1): 32, (7, 5): 32, (8, 6): 64, (9, 0): 2}
ratio = ratios[known.major, known.minor]
assert list(sizes) == [131072, 65536, 16384, 2048, 2097120, 131072, 32, ratio], list(sizes)
