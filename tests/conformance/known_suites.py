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
FAILS_ON_THE_CPU = (OLDER_PYTORCH, "fails on the device cpu, too, with PyTorch 2.13")
_MUON = (OLDER_PYTORCH, "PyTorch 2.13 has Muon, which the test gives a vector")
_LINALG = {
    "test_norm_matrix_degenerate_shapes_cuda": "PyTorch 2.13 takes a norm of a matrix without elements",
    "test_ormqr_errors_and_warnings_cuda": "PyTorch 2.13 words the error otherwise",
}
_SPARSE = "TestSparseCSRCUDA"
_BLOCKS = (None, "the CPU's kernel solves no unitriangular systems of blocks, on the device cpu, too")
_LARGE = (None, "needs a device of 10 GiB; it was run with 4")
_NO_VITALS = (OLDER_PYTORCH, "PyTorch 2.13 has no `torch.read_vitals`")
_CALLING_THREAD = (None, "backward passes run in the thread that asks for them")
_DTYPE_OF_CUDA = (None, "the engine has no kernel for a dtype that CUDA takes")
_WARNING_OF_QUEUED = (None, "what a kernel warns of on a worker is no warning of Python's")
_UINT8 = (None, "the engine resizes images of uint8, where CUDA raises")
_WORDS = (None, "the words of PyTorch's reports and its log; those here name ranges of bytes")
_CUDA = "test_cuda.py"
_STAGES = (NVIDIA, "looks at stages of NVIDIA's compiler that kernels for the host do not pass")
_BEHIND = (None, "the test writes behind its tensor of one element, which is an error here")

_C10D = "test_c10d_nccl.py"
_FLOAT8 = (OLDER_PYTORCH, "PyTorch 2.13 reduces float8_e4m3fn and float8_e5m2, which NCCL has since 2.24")
# Of tests of torch.distributed: file, class, names, and what `KNOWN` says.
_DISTRIBUTED: tuple[tuple[str, str, str, tuple[str | None, str]], ...] = (
    (
        *(_C10D, "ProcessGroupNCCLGroupTest", "abort_pg"),
        (None, "what an aborted collective was to write raises where it is read; NCCL leaves what is there"),
    ),
    (
        *(_C10D, "ProcessGroupNCCLGroupTest", "comm_split_subgroup"),
        (None, "a rank that is in no part does not count the split"),
    ),
    (
        *(_C10D, "NcclErrorHandlingTest"),
        " ".join(
            f"nccl_errors_blocking_{how}" for how in ("clean_exit", "nonzero_exit", "sigkill", "sigterm")
        ),
        (None, "the wait for a work whose other ranks have ended does not raise"),
    ),
    (*(_C10D, "NcclErrorHandlingTest", "nccl_timeout"), (None, "the words of the error")),
    (
        *(_C10D, "CommTest"),
        "all_reduce_coalesced_nccl_float8_errors reduce_scatter_base_k_float8_errors "
        "reduce_scatter_tensor_coalesced_float8_errors",
        _FLOAT8,
    ),
    (
        *(_C10D, "CommTest", "nccl_barrier_device_ids_function_argument"),
        (OLDER_PYTORCH, "PyTorch 2.13 does not refuse what is no list"),
    ),
    (*(_C10D, "CommTest", "pass_nccl_options_config"), (NVIDIA, "reads the log that NCCL writes")),
    (
        *("test_fully_shard_init.py", "TestFullyShardProcessGroupInit"),
        "1d_process_group_init 2d_process_group_init",
        (OLDER_PYTORCH, "PyTorch 2.13 has no `DeviceMesh._dim_group_infos`"),
    ),
    (
        *("test_checkpoint.py", "TestDistributedFailure"),
        "load_error_handling load_error_handling_no_dist",
        (OLDER_PYTORCH, "PyTorch 2.13 raises a ValueError where an assertion stood"),
    ),
    ("test_utils.py", "TestMedatadaIndex", "dcp_logger", FAILS_ON_THE_CPU),
    (
        *("test_api.py", "DTensorAPITest", "distribute_module_casting"),
        (OLDER_PYTORCH, "PyTorch 2.13 distributes a module once"),
    ),
    (
        *("test_dtensor.py", "DTensorTest", "dtensor_new_empty_strided"),
        (OLDER_PYTORCH, "PyTorch 2.13 chooses other placements"),
    ),
    (
        *("test_dtensor.py", "DTensorMeshTest", "implicit_replication_for_foreach_ops"),
        (OLDER_PYTORCH, "PyTorch 2.13 replicates where 2.6 refused"),
    ),
    (
        *("test_dtensor.py", "TestDTensorPlacementTypes", "split_tensor_1D"),
        (OLDER_PYTORCH, "PyTorch 2.13 has a padding of 0 for each rank of an empty tensor"),
    ),
    (
        *("test_dtensor.py", "DTensorLogTest", "dtensor_log"),
        (OLDER_PYTORCH, "expects a line of the log from a file that PyTorch 2.13 does not log from"),
    ),
)

KNOWN: dict[tuple[str, str], tuple[str | None, str]] = {
    **{
        (file, f"{group}.test_{test}"): said
        for file, group, tests, said in _DISTRIBUTED
        for test in tests.split()
    },
    **{
        (f"{file}.py", f".{test}"): _STAGES
        for file, test in (
            ("test_reproducer", "test_triton_reproducer_path"),
            ("test_stages_inspection", "test_inspection"),
            ("test_irsource", "test_mlir_attribute_parsing"),
            ("test_autotuner", "test_override_ttgir"),
            ("test_link", "test_link_extern_libs[add_one-True]"),
            ("test_link", "test_link_extern_libs[add_one_indirect-True]"),
            ("test_line_info", "test_use_name_loc_as_prefix"),
        )
    },
    **{
        ("test_annotations.py", f".test_int_annotation[{signed}-{width}]"): _BEHIND
        for signed in (False, True)
        for width in (1, 8, 16, 32, 64)
    },
    **{
        (f"{file}.py", f".{test}"): (
            "a larger device",
            "asks for more than the 8 GiB that the device was given",
        )
        for file, test in (
            ("test_rope_padded", "test_consistency[1.0-False-3-18300-4098--f32-non-adj]"),
            ("test_rope_padded", "test_consistency[4.0-False-3-18300-4098--f32-non-adj]"),
            ("test_rope_padded", "test_consistency[1.0-True-1-18300-4098--f32-adj]"),
            ("test_mamba3_siso", "test_mamba3_siso_combined_batched"),
        )
    },
    **{
        (f"{file}.py", f".{test}"): (None, "had not ended after 120 s, which other work on two cores took")
        for file, test in (
            (
                "test_cross_entropy",
                "test_correctness_with_softcap_once[1.0-dtype1-1e-08-1e-06-none-2-4096-32000-30.0]",
            ),
            ("test_grpo_loss", "test_grpo_loss[dtype0-0.05-0.5-1-1024-151936-0.7-1-0.0-0.2-0.4]"),
            ("test_swiglu", "test_correctness_mixtralexperts[dtype1-100.0-0.05-2-256-256-512]"),
        )
    },
    **{
        (f"{file}.py", f".{test}"): (
            None,
            "8 GiB were too few, part of which tests that had failed in the same process held",
        )
        for file, test in (
            (
                "test_cross_entropy",
                "test_correctness_with_forward_only[dtype0-1.0-0.0001-0.0001-none-2-4096-32000--100]",
            ),
            ("test_kl_div", "test_correctness[dtype0-1e-08-0.05-batchmean-True-1-4096-32000]"),
            ("test_kl_div", "test_correctness_not_last[dtype2-0.001-0.001-mean-False-1-4096-32000]"),
        )
    },
    ("test_blockwise_kernels.py", ".test_triton_fp8_gemm_1x128_128x1[dtype0-26-18944-1664]"): (
        None,
        "the kernel reads scales behind their tensor where M is no multiple of its tile: an error here",
    ),
    ("test_kernels.py", ".test_row_major_with_jagged_rowwise_scales[False]"): (
        None,
        "the kernel is given a stride of 1 for both dimensions of its result: rows overwrite one another",
    ),
    ("test_autotuner.py", ".test_hooks"): (
        None,
        "expects that 64 stages of a loop do not fit into shared memory, which is not counted",
    ),
    ("test_launch.py", ".test_launch_with_options[options2]"): (
        NVIDIA,
        "gives the compiler libdevice's bitcode, which is in Triton's sources alone",
    ),
    **{
        ("test_gpu_torchinductor.py", test): (OLDER_PYTORCH, reason)
        for test, reason in (
            ("GPUTests.test_addmv_cuda", FAILS_ON_THE_CPU[1]),
            ("GPUTests.test_add_complex4_cuda", FAILS_ON_THE_CPU[1]),
            ("GPUTests.test_dropout3_cuda", "PyTorch 2.13 draws four numbers at once"),
            ("GPUTests.test_fractional_max_pool2d2_cuda", "PyTorch 2.13 has a lowering for it"),
            ("GPUTests.test_max_pool2d8_cuda", "PyTorch 2.13 has a lowering for it"),
            ("GPUTests.test_max_pool2d_with_indices_backward4_cuda", "PyTorch 2.13 decomposes it"),
            ("GPUTests.test_inner_fn_str_and_stride_cuda", "PyTorch 2.13 has no `size_hints`"),
            ("TritonCodeGenTests.test_kernel_names_descriptive", "PyTorch 2.13 names kernels otherwise"),
            ("TritonCodeGenTests.test_evict_last_non_coalesced_loads", "PyTorch 2.13 tiles such sums"),
            (
                "TritonCodeGenTests.test_evict_last_non_coalesced_loads_block_ptr",
                "PyTorch 2.13 tiles such sums",
            ),
        )
    },
    **{
        ("test_gpu_torchinductor.py", f"GPUTests.test_aoti_eager_{test}_cuda"): (
            NVIDIA,
            "AOTInductor's C++ starts kernels by the driver",
        )
        for test in ("dtype_device_layout", "support_str")
    },
    ("pytorch_distributed.py", "TestDistributed.test_ddp_profiling_torch_profiler"): (
        None,
        "a profile has no row `record_param_comms` for a wait",
    ),
    **{
        (
            "test_symmetric_memory.py",
            f"SymmetricMemoryTest.test_fused_scaled_matmul_reduce_scatter_scatter_dim_{dim}_rowwise_{rowwise}",
        ): (OLDER_PYTORCH, "the op takes more arguments in PyTorch 2.13")
        for dim in (0, 1)
        for rowwise in (False, True)
    },
    **{
        (
            "test_symmetric_memory.py",
            f"SymmetricMemoryTest.test_fused_all_gather_matmul_native_symm_mem_input_{given}_is_b_row_major_{row}",
        ): ("a CUDA kernel or Triton", "`symm_mem::_async_input_mm` is not implemented")
        for given in (False, True)
        for row in (False, True)
    },
    ("test_symmetric_memory.py", "SymmetricMemoryTest.test_cuda_nvlink_connectivity_detection"): (
        "a library of NVIDIA's",
        "PyTorch asks NVML which devices NVLink joins, in a build for CUDA",
    ),
    ("pytorch_distributed.py", "TestDistributed.test_ddp_uneven_inputs"): (
        None,
        "over 120 s: some 180 steps of 1.3 TFLOP on a CPU; with images of 40 by 40 it passes in 16 s",
    ),
    **{
        ("test_linalg.py", f"TestLinalgCUDA.{test}_{dtype}"): (
            OLDER_PYTORCH,
            f"{reason}, on the device cpu, too",
        )
        for test, reason in _LINALG.items()
        for dtype in ("float32", "float64", "complex64", "complex128")
    },
    (
        "test_sparse_semi_structured.py",
        "TestSparseSemiStructuredCUSPARSELTCUDA.test_cusparselt_backend_cuda",
    ): (
        OLDER_PYTORCH,
        "asserts the release of cuSPARSELt that PyTorch 2.6 came with",
    ),
    ("test_autocast.py", "TestAutocastCPU.test_autocast_rnn"): FAILS_ON_THE_CPU,
    **{
        ("test_binary_ufuncs.py", f"TestBinaryUfuncsCUDA.{test}"): FAILS_ON_THE_CPU
        for test in (
            "test_reference_numerics_extremal_values_heaviside_cuda_float64",
            "test_reference_numerics__refs_add_cuda_complex32",
            "test_reference_numerics_extremal_values__refs_add_cuda_complex64",
            "test_reference_numerics_small_values__refs_pow_cuda_int32",
            "test_type_promotion__refs_isclose_cuda",
            "test_type_promotion_div_floor_rounding_cuda",
        )
    },
    (
        "test_binary_ufuncs.py",
        "TestBinaryUfuncsCUDA.test_pow_cuda_complex_extremal_failing_cuda_complex128",
    ): (
        None,
        "asserts that CUDA's value is not the CPU's; the engine is the CPU",
    ),
    ("test_torch.py", "TestTorchDeviceTypeCUDA.test_cpp_warnings_have_python_context_cuda"): FAILS_ON_THE_CPU,
    ("test_profiler.py", "TestProfiler.test_profiler_time_scale"): (
        None,
        "the device's time is simulated: where it has nothing to do, its rows stand at the start",
    ),
    **{
        ("test_matmul_cuda.py", f"TestMatmulCudaCUDA.test_cublas_{test}"): (
            None,
            "over 100 s: products of 10,000 by 10,000 in half precision on a CPU",
        )
        for test in (
            "addmm_reduced_precision_size_10000_cuda_bfloat16",
            "baddbmm_large_input_1_10000_1000_10000_cuda_float16",
        )
    },
    ("test_torch.py", "TestBasicVitalSigns.test_dataloader_vitals"): _NO_VITALS,
    **{
        ("test_dlpack.py", f"TestTorchDlPackCUDA.test_dlpack_conversion_with_diff_streams_cuda_{dtype}"): (
            OLDER_PYTORCH,
            "PyTorch 2.13 takes the stream of `__dlpack__` by its name",
        )
        for dtype in (
            *(f"int{bits}" for bits in (8, 16, 32, 64)),
            *("uint8", "bool", "bfloat16", "float16", "float32", "float64", "complex64", "complex128"),
        )
    },
    ("test_modules.py", "TestModuleCUDA.test_memory_format_nn_AvgPool2d_cuda_float32"): (
        None,
        "expects a wrong gradient of CUDA's kernel (issue 107201); the engine's is right",
    ),
    **{
        ("test_pooling.py", f"TestPoolingNNDeviceTypeCUDA.test_max_pool3d_ndhwc_cuda_{dtype}"): (
            None,
            "the engine keeps the order of channels only with a batch",
        )
        for dtype in ("float16", "float32", "float64")
    },
    **{
        ("test_native_mha.py", f"TestMHADeviceTypeCUDA.test_native_multihead_{test}_cuda_float16"): (
            None,
            "one or two of 4,096 weights lie a rounding of their float16 scores beyond the limit",
        )
        for test in (
            f"self_attention_use_nt_False_use_padding_{pads}_pad_all_{all_pads}_need_weights_False"
            f"_average_attn_weights_{averages}_fused_False"
            for pads, all_pads in (("False", "False"), ("True", "False"), ("True", "True"))
            for averages in ("False", "True")
        )
    },
    (
        "test_sparse_csr.py",
        f"{_SPARSE}.test_block_addmm_block_size_3_int32_noncontiguous_False_cuda_float16",
    ): (
        None,
        "one number of 36 lies one rounding of float16 beyond the limit",
    ),
    **{
        ("test_sparse_csr.py", f"{_SPARSE}.test_block_triangular_solve_block_size_{test}"): _BLOCKS
        for test in (
            f"{size}_{index}_noncontiguous_{strided}_cuda_{dtype}"
            for size in (2, 3)
            for index in ("int32", "int64")
            for strided in ("False", "True")
            for dtype in ("float32", "float64", "complex64", "complex128")
        )
    },
    **{
        ("test_ctx_manager.py", f"CtxManagerTests.test_cuda_{test}"): (
            OLDER_PYTORCH,
            "counts the ops that PyTorch 2.6 traced of streams and events",
        )
        for test in (
            *("event_across_graph_break", "event_method", "stream_context_manager1", "stream_method"),
            "event_method_create_stream_outside_of_compile",
        )
    },
    ("test_ctx_manager.py", "CtxManagerTests.test_cuda_event_created_outside_of_graph"): (
        None,
        "a race: a product writes what another stream reads; the engine's writes partial sums on the way, "
        "cuBLAS only the same values again",
    ),
    ("test_torch.py", "TestTorch.test_storage_dead_weak_ref"): FAILS_ON_THE_CPU,
    ("test_torch.py", "TestVitalSignsCudaCUDA.test_cuda_vitals_gpu_only_cuda"): _NO_VITALS,
    ("test_torch.py", "TestTorchDeviceTypeCUDA.test_nondeterministic_alert_histc_cuda"): (
        OLDER_PYTORCH,
        "PyTorch 2.13 says `_histc_cuda with floating point input`",
    ),
    ("test_torch.py", "TestTorchDeviceTypeCUDA.test_deterministic_empty_cuda_uint64"): (
        None,
        "a number of 2^63 and more does not reach a kernel",
    ),
    ("test_torch.py", "TestTorchDeviceTypeCUDA.test_sync_warning_cuda"): (
        None,
        "`x[mask] = y` with one number on the device does not wait here",
    ),
    **{
        (f"test_{file}.py", f"Test{group}CUDA.test_{test}"): reason
        for file, group, reason, tests in (
            ("autograd", "AutogradDeviceType", _CALLING_THREAD, "reentrant_parent_error_on_cpu_cuda"),
            ("autograd", "AutogradMultipleDispatch", _CALLING_THREAD, "backward_single_threaded_cuda"),
            ("binary_ufuncs", "BinaryUfuncs", _DTYPE_OF_CUDA, "non_contig_index_pow_cuda_complex32"),
            ("indexing", "Indexing", _LARGE, "index_put_accumulate_large_tensor_cuda"),
            (
                *("optim", "OptimRenewed", (None, "one rounding of bfloat16 apart")),
                "mixed_device_dtype_impl_foreach_RMSprop_cuda_float32",
            ),
            ("optim", "OptimRenewed", _MUON, "tensor_lr_Muon_cuda_float32"),
            (
                *("reductions", "Reductions", _DTYPE_OF_CUDA),
                "ref_duplicate_values_nanmean_cuda_complex128 ref_small_input_nanmean_cuda_complex64",
            ),
            ("shape_ops", "ShapeOps", FAILS_ON_THE_CPU, "rot90_cuda"),
            (
                *("tensor_creation_ops", "AsArray", FAILS_ON_THE_CPU),
                "alias_from_tensor_cuda_bfloat16 alias_from_tensor_cuda_complex128 "
                "retain_autograd_history_cuda_complex64",
            ),
            (
                *("tensor_creation_ops", "TensorCreation", _WARNING_OF_QUEUED),
                "random_from_to_cuda_bfloat16 random_from_to_cuda_float64",
            ),
            ("type_promotion", "TypePromotion", FAILS_ON_THE_CPU, "cat_out_different_dtypes_cuda"),
        )
        for test in tests.split()
    },
    **{
        ("test_optim.py", f"TestOptimRenewedCUDA.{test}"): _MUON
        for test in (
            "test_forloop_goes_right_direction_multigpu_with_lrsched_False_Muon_cuda_float32",
            "test_step_post_hook_Muon_cuda_float32",
        )
    },
    **{
        (
            "test_nn.py",
            "TestNNDeviceTypeCUDA.test_upsamplingBiMode2d_nonsupported_dtypes_antialias_"
            f"{case}_mode_bicubic_uint8_cuda_uint8",
        ): _UINT8
        for case in ("False_num_channels_3", "True_num_channels_5")
    },
    ("test_nn.py", "TestNNDeviceTypeCUDA.test_grid_sample_bfloat16_precision_cuda"): (
        None,
        "the engine interpolates in bfloat16, CUDA in float32",
    ),
    ("test_sparse.py", "TestSparseAnyCUDA.test_like_fns_randn_like_SparseBSR_cuda_float16"): (
        None,
        "`empty_like` of a sparse tensor stays on its device whatever `device` says",
    ),
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
    (_CUDA, "TestCuda.test_cublas_workspace_explicit_allocation"): (
        OLDER_PYTORCH,
        "PyTorch 2.13 reads CUBLAS_WORKSPACE_CONFIG once",
    ),
    (_CUDA, "TestCuda.test_cublas_allow_bf16_reduced_precision_reduction_get_set"): _FIGURE_OF_CUBLAS,
    (_CUDA, "TestCuda.test_cublas_allow_fp16_reduced_precision_reduction_get_set"): _FIGURE_OF_CUBLAS,
    (_CUDA, "TestCuda.test_out_of_memory_retry"): (
        None,
        "two halves of a device's memory fit: only tensors take any of it, where a card's context does, too",
    ),
}

# Every test of these groups, where the table above has none of it.
KNOWN_GROUPS = {
    ("test_cuda_sanitizer.py", "TestMessages"): _WORDS,
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

# This file runs the tests of test_cuda.py, with another setting.
_EXPANDABLE = "test_cuda_expandable_segments.py"
KNOWN.update({(_EXPANDABLE, test): why for (file, test), why in KNOWN.items() if file == _CUDA})
NOT_RUN.update({(_EXPANDABLE, test): why for (file, test), why in NOT_RUN.items() if file == _CUDA})
