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
