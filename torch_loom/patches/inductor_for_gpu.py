"""What Inductor asks of a build for CUDA, and of a GPU, where it compiles for one."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from torch_loom import _C, config
from torch_loom.patches.declared import Place, patch

NO_BODY = "never: a CPU build has no body for it"


@patch("torch._C:_dynamo.guards._empty_strided_cuda", until=NO_BODY)
def buffers_of_device(place: Place) -> Any:
    """Generated code makes its buffers with a function whose body is in a build for CUDA alone."""
    device = torch.device(place.device)

    def empty_strided(sizes: Sequence[int], strides: Sequence[int], dtype: torch.dtype) -> torch.Tensor:
        return torch.empty_strided(sizes, strides, dtype=dtype, device=device)

    return empty_strided


@patch("torch._inductor.config:use_static_cuda_launcher", until=NO_BODY)
def launched_by_triton(place: Place) -> Any:
    """Generated kernels are started by NVIDIA's driver from its machine code, past Triton's launcher."""
    return False


@patch(
    "torch._inductor.codegen.common:get_wrapper_codegen_for_device",
    importers="torch._inductor.graph",
    until=NO_BODY,
)
def no_wrapper_in_cpp(place: Place, error: type[Exception]) -> Any:
    """AOTInductor and the setting `cpp_wrapper` generate C++ that calls a card's driver, or know no other."""

    def get_wrapper_codegen_for_device(
        device: str, cpp_wrapper: bool = False, fx_wrapper: bool = False
    ) -> Any:
        if cpp_wrapper and not fx_wrapper and device == place.device:
            raise error(
                "AOTInductor and cpp_wrapper generate C++ that starts kernels by a card's driver, which no "
                f"{device} device has here: use torch.compile, without cpp_wrapper"
            )
        return place.original(device, cpp_wrapper, fx_wrapper)

    return get_wrapper_codegen_for_device


@patch(
    "torch._inductor.choices:InductorChoices.should_use_cooperative_reduction",
    until="never: programs run one after another on a core",
)
def no_barriers_of_grids(place: Place) -> Any:
    """A cooperative reduction waits until all programs of a launch have come to a barrier."""
    return lambda *sizes: False


@patch(
    "torch._inductor.runtime.benchmarking:InductorBenchmarker.benchmark_gpu",
    until="never: elsewhere time is not simulated",
)
def timed_once(place: Place) -> Any:
    """Inductor fills the cache and runs what it times a hundred times; simulated time is the same at each."""
    from torch._inductor.runtime import benchmarking

    device = getattr(torch, place.device)

    def benchmark_gpu(
        self: Any,
        _callable: Callable[[], Any],
        *counts: int,
        return_mode: str = "min",
        grad_to_none: Sequence[torch.Tensor] | None = None,
        is_vetted_benchmarking: bool = False,
        **options: Any,
    ) -> Any:
        if return_mode not in ("min", "all"):
            raise ValueError(f"Unsupported return_mode: {return_mode}. Use 'min' or 'all'.")
        if not is_vetted_benchmarking:
            benchmarking.may_ban_benchmarking()
        device.synchronize()
        issued_ns = _C.clock_ns(-1)
        _callable()
        issued_ns = _C.clock_ns(-1) - issued_ns
        for tensor in grad_to_none or ():
            tensor.grad = None
        device.synchronize()
        begin, end = (device.Event(enable_timing=True) for _ in range(2))
        # So long that the host has issued all of it by then.
        filled_ms = (2 * issued_ns + 100_000) * 1e-6
        device._sleep(int(filled_ms * device.get_device_properties().clock_rate))
        begin.record()
        _callable()
        end.record()
        device.synchronize()
        time = begin.elapsed_time(end)
        return [time] if return_mode == "all" else time

    timed = benchmarking.may_distort_benchmarking_result(benchmarking.time_and_count(benchmark_gpu))

    def chosen(self: Any, *args: Any, **options: Any) -> Any:
        is_simulated = config.resolve().clock == "simulated"
        return timed(self, *args, **options) if is_simulated else place.original(self, *args, **options)

    return chosen
