from torch._inductor import config
from torch._inductor.cudagraph_trees import get_manager

config.compile_threads, config.cpp_cache_precompile_headers = 1, False
config.triton.slow_path_cudagraph_asserts = True

OVERWRITTEN = (
    "accessing tensor output of CUDAGraphs that has been overwritten by a subsequent run. Stack trace: "
)
WAY_OUT = (
    "To prevent overwriting, clone the tensor outside of torch.compile() or call "
    "torch.compiler.cudagraph_mark_step_begin() before each model invocation."
)


def is_overwritten(read):
    try:
        read()
    except RuntimeError as error:
        assert OVERWRITTEN in str(error) and WAY_OUT in str(error), error
        return True
    return False


def num_graphs(device=0):
    manager = get_manager(device)
    return sum(1 + root.num_descendants() for root in manager.get_roots())
