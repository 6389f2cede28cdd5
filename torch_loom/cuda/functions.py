"""The functions and classes of ``torch._C`` that only CUDA builds of PyTorch have, answered by our module.

PyTorch's own Python and libraries call them by these names. Those that stand for a library of NVIDIA's say so
when they are called.
"""

from __future__ import annotations

from collections.abc import Callable
from types import ModuleType
from typing import Any, NoReturn

import torch

from torch_loom import _C, torch_version
from torch_loom.cuda import libraries, release
from torch_loom.device._core import first_use
from torch_loom.device._core.first_use import _chip_names, _lazy_init
from torch_loom.errors import NotApplicableError
from torch_loom.patches.declared import CUDA_NAME

# Figures of cuDNN and cuBLASLt that programs set and read back; nothing here depends on them.
_KEPT_FIGURES: dict[str, int | bool] = {
    "cudnn_benchmark_limit": 10,
    "conv_benchmark_empty_cache": False,
    "cublaslt_requested_algo_count": 8,
}


def provide(module: ModuleType) -> None:
    """Put them in place.

    Args:
        module: the device module, which answers them.
    """
    functions = {
        **_device_functions(module),
        **_stream_functions(module),
        **_memory_functions(module),
        **_pool_functions(),
        **_figure_functions(),
        **_attention_functions(),
        **libraries.functions(module),
        **_classes(module),
    }
    lacking = torch_version.names_lacking(str(torch.__version__))
    for name, value in functions.items():
        if name in lacking:
            continue
        is_function = callable(value) and not isinstance(value, type)
        CUDA_NAME.put(torch._C, **{name: _own(name, value) if is_function else value})
    computed = "_dispatch_has_computed_kernel_for_dispatch_key"
    CUDA_NAME.put(
        torch._C,
        _has_cuda=True,
        _show_config=_show_config(torch._C._parallel_info),
        **{computed: _has_kernel_on_card(getattr(torch._C, computed))},
    )


def _own(name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    # Dynamo has a rule for each name and looks it up by the function: no two names may have one function.
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    call.__name__ = call.__qualname__ = name
    return call


def _has_kernel_on_card(is_dispatched: Callable[[str, Any], bool]) -> Callable[[str, Any], bool]:
    # Every op is dispatched to the device's kernel for all ops, which refuses ops without a CUDA kernel.
    # torch._custom_ops.impl calls this before it takes a kernel of the program's.
    composites = (
        "CompositeImplicitAutograd",
        "CompositeExplicitAutograd",
        "CompositeExplicitAutogradNonFunctional",
    )

    def call(op: str, key: Any) -> bool:
        if key not in ("CUDA", torch._C.DispatchKey.CUDA) or not is_dispatched(op, key):
            return is_dispatched(op, key)
        has_own = any(
            torch._C._dispatch_has_kernel_for_dispatch_key(op, each) for each in ("CUDA", *composites)
        )
        return has_own or bool(_C.op_facts(*op.split("."))["is_served"])

    call.__name__ = call.__qualname__ = "_dispatch_has_computed_kernel_for_dispatch_key"
    return call


def _initialized(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any) -> Any:
        _lazy_init()
        return function(*args)

    return call


def _starting_driver(function: Callable[[], Any]) -> Callable[[], Any]:
    # Starts CUDA's driver on a GPU; torch.cuda.device_count() asks NVML, which does not.
    def call() -> Any:
        first_use._poison_forks()
        return function()

    return call


def _device_functions(module: ModuleType) -> dict[str, Any]:
    return {
        "_cuda_init": module.init,
        "_cuda_getDevice": module.current_device,
        "_cuda_setDevice": module.set_device,
        "_cuda_exchangeDevice": module._exchange_device,
        "_cuda_maybeExchangeDevice": module._maybe_exchange_device,
        "_cuda_getDeviceCount": _starting_driver(module.device_count),
        "_cuda_synchronize": lambda: module.synchronize(),
        "_cuda_canDeviceAccessPeer": module.can_device_access_peer,
        "_cuda_isInBadFork": first_use._is_in_bad_fork,
        "_cuda_hasPrimaryContext": _C.device_has_context,
        "_cuda_getArchFlags": _starting_driver(lambda: " ".join(module.get_arch_list()) or None),
        "_cuda_getCompiledVersion": release.cuda_version_number,
        "_cuda_getDriverVersion": release.cuda_version_number,
        "_cuda_set_sync_debug_mode": module.set_sync_debug_mode,
        "_cuda_get_sync_debug_mode": module.get_sync_debug_mode,
        "_cuda_sleep": module._sleep,
        "_cuda_ipc_collect": module.ipc_collect,
        "_cuda_getCurrentBlasHandle": module.current_blas_handle,
        "_cuda_getCurrentSolverHandle": module.current_solver_handle,
        "_cuda_clearCublasWorkspaces": _initialized(_C.clear_workspaces),
    }


def _stream_functions(module: ModuleType) -> dict[str, Any]:
    def raw_stream(device: int) -> int:
        stream = module.current_stream(device)
        return int(stream.native_handle) if stream.stream_id else 0

    def external(data_ptr: int, device: int) -> tuple[int, int, int]:
        stream = module.get_stream_from_external(data_ptr, device)
        return stream.stream_id, stream.device_index, stream.device_type

    return {
        "_cuda_getCurrentStream": _initialized(_C.current_stream),
        "_cuda_getDefaultStream": _initialized(_C.default_stream),
        "_cuda_getCurrentRawStream": raw_stream,
        "_cuda_getStreamFromExternal": external,
        "_cuda_setStream": module._set_stream_by_id,
        "_cuda_isCurrentStreamCapturing": module.is_current_stream_capturing,
    }


def _memory_functions(module: ModuleType) -> dict[str, Any]:
    memory = module.memory

    def snapshot(mempool_id: tuple[int, int] = (0, 0), include_traces: bool = True) -> dict[str, Any]:
        _lazy_init()
        return _C.memory_snapshot(mempool_id, include_traces)

    def record(
        enabled: str | bool | None, context: str | None = "all", stacks: str = "all", *rest: Any, **named: Any
    ) -> None:
        names = ("max_entries", "clear_history", "compile_context", "global_record_annotations")
        given = {**dict(zip(names, rest, strict=False)), **named}
        memory._record_memory_history(enabled, context, stacks, **given)

    def record_legacy(
        enabled: bool,
        record_context: bool,
        max_entries: int,
        alloc_context: bool,
        cpp_context: bool,
        clear_history: bool,
        *rest: Any,
    ) -> None:
        memory._record_memory_history(
            "all" if enabled else None,
            context="alloc" if alloc_context else "state" if record_context else None,
            stacks="all" if cpp_context else "python",
            max_entries=max_entries,
            clear_history=clear_history,
            skip_actions=rest[2] if len(rest) > 2 else None,
        )

    def change(allocator: Any) -> None:
        memory.change_current_allocator(memory.allocators._Allocator(allocator))

    return {
        "_cuda_getMemoryFraction": memory.get_per_process_memory_fraction,
        "_cuda_setMemoryFraction": memory.set_per_process_memory_fraction,
        "_cuda_emptyCache": lambda: module.empty_cache(),
        "_cuda_memoryStats": memory.memory_stats_as_nested_dict,
        "_cuda_resetAccumulatedMemoryStats": memory.reset_accumulated_memory_stats,
        "_cuda_resetPeakMemoryStats": memory.reset_peak_memory_stats,
        "_cuda_hostMemoryStats": memory.host_memory_stats_as_nested_dict,
        "_cuda_resetAccumulatedHostMemoryStats": memory.reset_accumulated_host_memory_stats,
        "_cuda_resetPeakHostMemoryStats": memory.reset_peak_host_memory_stats,
        "_cuda_memorySnapshot": snapshot,
        "_cuda_record_memory_history": record,
        "_cuda_record_memory_history_legacy": record_legacy,
        "_cuda_isHistoryEnabled": lambda: bool(_C.memory_snapshot((0, 0), True)["device_traces"]),
        "_cuda_allocationTraceback": memory.history._allocation_traceback,
        "_cuda_setMemoryMetadata": _C.set_memory_metadata,
        "_cuda_getMemoryMetadata": _C.memory_metadata,
        "_cuda_memoryMetadataSupported": lambda: memory.get_allocator_backend() == "native",
        "_cuda_annotateMemory": _refuse_annotation,
        "_cuda_attach_out_of_memory_observer": memory._attach_out_of_memory_observer,
        "_cuda_getAllocatorBackend": memory.get_allocator_backend,
        "_cuda_cudaCachingAllocator_raw_alloc": lambda size, stream: module.caching_allocator_alloc(
            size, stream=stream
        ),
        "_cuda_cudaCachingAllocator_raw_delete": module.caching_allocator_delete,
        "_cuda_cudaCachingAllocator_enable": memory.caching_allocator_enable,
        "_cuda_cudaCachingAllocator_is_enabled": _C.caching,
        "_cuda_cudaCachingAllocator_set_allocator_settings": memory._set_allocator_settings,
        "_cuda_cudaHostAllocator": _C.host_allocator,
        "_host_emptyCache": torch._C._accelerator_emptyHostCache,
        "_cuda_lock_mutex": _C.lock_free_mutex,
        "_cuda_unlock_mutex": _C.unlock_free_mutex,
        "_cuda_customAllocator": _C.MemorySource,
        "_cuda_changeCurrentAllocator": change,
        "_cuda_getAllocator": lambda: memory.allocators._get_current_allocator().allocator(),
    }


def _refuse_annotation(address: int, metadata: str) -> NoReturn:
    raise NotApplicableError(
        "torch._C._cuda_annotateMemory stands for a mark on memory that is taken already, which the history "
        "here does not keep: torch.cuda.memory._set_memory_metadata() marks what is taken from then on"
    )


def _pool_functions() -> dict[str, Any]:
    return {
        "_cuda_beginAllocateToPool": _initialized(_C.begin_allocate_to_pool),
        "_cuda_beginAllocateCurrentThreadToPool": _initialized(_C.begin_allocate_to_pool),
        "_cuda_beginAllocateCurrentStreamToPool": _initialized(_C.begin_allocate_to_pool),
        "_cuda_endAllocateToPool": _initialized(_C.end_allocate_to_pool),
        "_cuda_releasePool": _initialized(_C.release_pool),
        "_cuda_getCheckpointState": _initialized(_C.pool_checkpoint),
        "_cuda_setCheckpointPoolState": _initialized(_C.restore_pool),
        "_cuda_checkPoolLiveAllocations": _initialized(_C.pool_has_exactly),
        "_has_Standard_Deleter": _C.owns_device_memory,
        "_tensors_data_ptrs_at_indices_equal": _C.tensors_are_at,
        "_construct_CUDA_Tensor_From_Storage_And_Metadata": _C.tensor_over,
        "_free_And_Remove_DeleterFn": _C.free_memory_of,
        "_set_storage_access_error_msg": _C.forbid_tensor,
        "_set_storage_data_ptr_access_error_msg": _C.forbid_storage,
        "_clear_storage_data_ptr_access_error_msg": _C.permit_storage,
    }


def _figure_functions() -> dict[str, Any]:
    def pair(figure: str, getter: str, setter: str) -> dict[str, Any]:
        return {getter: lambda: _KEPT_FIGURES[figure], setter: lambda value: _keep(figure, value)}

    return {
        **pair("cudnn_benchmark_limit", "_cuda_get_cudnn_benchmark_limit", "_cuda_set_cudnn_benchmark_limit"),
        **pair(
            "conv_benchmark_empty_cache",
            "_cuda_get_conv_benchmark_empty_cache",
            "_cudnn_set_conv_benchmark_empty_cache",
        ),
        "_cuda_tunableop_get_cublaslt_requested_algo_count": lambda: _KEPT_FIGURES[
            "cublaslt_requested_algo_count"
        ],
        "_cuda_tunableop_set_cublaslt_requested_algo_count": lambda count: _keep(
            "cublaslt_requested_algo_count", max(count, 1)
        ),
        **_workspace_functions("Cublas", is_linear=False),
        **_workspace_functions("CublasLt", is_linear=True),
    }


def _workspace_functions(library: str, *, is_linear: bool) -> dict[str, Any]:
    def choose(bytes: int) -> None:
        if bytes < 0:
            raise ValueError(f"the workspace of {library} cannot have a negative size, got {bytes!r}")
        _C.set_workspace_bytes(is_linear, bytes)

    return {
        f"_cuda_get{library}WorkspaceSize": _initialized(lambda: _C.workspace_bytes(is_linear)),
        f"_cuda_set{library}WorkspaceSize": choose,
        f"_cuda_reset{library}WorkspaceSize": lambda: _C.set_workspace_bytes(is_linear, None),
    }


def _attention_functions() -> dict[str, Any]:
    def own(can_use: Callable[..., bool]) -> Callable[..., bool]:
        def call(params: Any, debug: bool) -> bool:
            return can_use(
                *(params.query, params.key, params.value, params.attn_mask, params.dropout),
                *(params.is_causal, params.enable_gqa, debug),
            )

        return call

    return {
        "_can_use_flash_attention": own(_C.can_use_flash_attention),
        "_can_use_mem_efficient_attention": own(_C.can_use_efficient_attention),
        "_can_use_cudnn_attention": own(_C.can_use_cudnn_attention),
        "_is_flash_attention_available": lambda: True,
    }


def _keep(figure: str, value: int | bool) -> None:
    if value < 0:
        raise ValueError(f"{figure} cannot be negative, got {value!r}")
    _KEPT_FIGURES[figure] = value


def _classes(module: ModuleType) -> dict[str, Any]:
    return {
        "_CudaStreamBase": module.Stream,
        "_CudaEventBase": module.Event,
        "_CUDAGraph": _C.Graph,
        "_CudaDeviceProperties": module.devices.DeviceProperties,
        "_cuda_CUDAAllocator": _C.MemorySource,
        "_cuda_CUDAAllocator_AllocatorState": _C.PoolCheckpoint,
        "_graph_pool_handle": module.graph_pool_handle,
        "_construct_CUDA_Tensor_From_Storage_And_Metadata": _tensor_over,
    }


def _tensor_over(metadata: dict[str, Any], storage: torch.UntypedStorage) -> torch.Tensor:
    """Return a tensor over a storage, as its metadata says: dtype, size, stride and storage_offset."""
    tensor = torch.empty(0, dtype=metadata["dtype"], device=storage.device)
    return tensor.set_(storage, metadata["storage_offset"], metadata["size"], metadata["stride"])


def _show_config(parallel_info: Callable[[], str]) -> Callable[[], str]:
    def show() -> str:
        # PyTorch's own text asks CUDA's libraries for their versions.
        names = " ".join(_chip_names())
        return f"PyTorch {torch.__version__}\n  - cuda devices: torch-loom's ({names})\n{parallel_info()}"

    return show
