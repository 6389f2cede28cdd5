from torch._inductor import config
from torch._inductor.cudagraph_trees import get_manager

config.compile_threads, config.cpp_cache_precompile_headers = 1, False
config.triton.slow_path_cudagraph_asserts = True

OVERWRITTEN = (
    "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. Stack trace: "
)
# How the sentence begins: another way stands first since 2.14.
WAY_OUT = "To prevent overwriting, c"
MARK = "torch.compiler.cudagraph_mark_step_begin() before each model invocation."


def is_overwritten(read):
    try:
        read()
    except RuntimeError as error:
        assert all(part in str(error) for part in (OVERWRITTEN, WAY_OUT, MARK)), error
        return True
    return False


def num_graphs(device=0):
    manager = get_manager(device)
    return sum(1 + root.num_descendants() for root in manager.get_roots())
