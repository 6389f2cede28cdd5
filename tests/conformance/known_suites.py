"""Failures of other projects' tests whose message does not say why: the reason, in the document's words.

`KNOWN` maps (file, test) to what the test needs that is not here, None if it counts as failed, and why.
`NOT_RUN` names tests that would hold up the run; they count as failed, too.
"""

from __future__ import annotations

OLDER_PYTORCH = "the PyTorch that it was written for"
NVIDIA = "a library of NVIDIA's"

_FIGURE_OF_CUBLAS = (
    OLDER_PYTORCH,
    "`torch._C` of PyTorch 2.13 answers with two values: whether sums may be of lower precision, and whether "
    "they may be split",
)
_NO_CONTEXT = (OLDER_PYTORCH, "PyTorch 2.13 has no `MemPoolContext`")
_CUDA = "test_cuda.py"

KNOWN: dict[tuple[str, str], tuple[str | None, str]] = {
    (_CUDA, "TestBlockStateAbsorption.test_allocate_in_thread_to_pool"): (
        OLDER_PYTORCH,
        "PyTorch 2.13 has no `_cuda_endAllocateCurrentStreamToPool`",
    ),
    (_CUDA, "TestMemPool.test_mempool_context"): _NO_CONTEXT,
    (_CUDA, "TestMemPool.test_mempool_multithread"): _NO_CONTEXT,
    (_CUDA, "TestMemPool.test_mempool_with_allocator"): (NVIDIA, "the test compiles with cublas_v2.h"),
    (_CUDA, "TestCudaMallocAsync.test_cpp_memory_snapshot_pickle"): (
        NVIDIA,
        "the test links `torch::cuda::_record_memory_history` of libtorch_cuda",
    ),
    (_CUDA, "TestCudaMallocAsync.test_allocator_settings"): (
        OLDER_PYTORCH,
        "PyTorch 2.13 raises ValueError for a bad setting, 2.6 RuntimeError",
    ),
    (_CUDA, "TestCudaMallocAsync.test_cachingAllocator_raw_alloc"): (
        None,
        "memory that is not cached counts in the statistics here: it is the device's all the same",
    ),
    (_CUDA, "TestCudaAutocast.test_cuda_module_loading_env"): (
        OLDER_PYTORCH,
        "PyTorch 2.13 does not set CUDA_MODULE_LOADING",
    ),
    (_CUDA, "TestCuda.test_check_error"): (NVIDIA, "numbers of errors of the CUDA runtime library"),
    (_CUDA, "TestCuda.test_cublas_allow_bf16_reduced_precision_reduction_get_set"): _FIGURE_OF_CUBLAS,
    (_CUDA, "TestCuda.test_cublas_allow_fp16_reduced_precision_reduction_get_set"): _FIGURE_OF_CUBLAS,
    (_CUDA, "TestCuda.test_cublas_workspace_explicit_allocation"): (NVIDIA, "memory that cuBLAS works in"),
}

_SLOW_HALF = "float16 matrix products of a training step of 23 GFLOP: the CPU's kernels take minutes"

NOT_RUN: dict[tuple[str, str], str] = {
    (_CUDA, "TestCuda.test_cusparse_multiple_threads_same_device"): (
        "not run: 3,000 sparse products of 2 GFLOP each, an hour on a CPU"
    ),
    (
        _CUDA,
        "TestCuda.test_graph_make_graphed_callables_with_amp_cache_disabled_allow_unused_input",
    ): f"not run: {_SLOW_HALF}",
    (
        _CUDA,
        "TestCuda.test_graph_make_graphed_callables_with_amp_cache_enabled_allow_unused_input",
    ): f"not run: {_SLOW_HALF}",
}
