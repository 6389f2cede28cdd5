"""What libraries ask of torch.cuda and call. Programs of those to install are in tests/libraries."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

PROGRAMS = Path(__file__).parent / "programs" / "libraries"

BINARY = (
    *("maximum", "minimum", "mul", "add", "sub", "div", "pow", "fmod"),
    *("remainder", "atan2", "le", "lt", "eq", "fmax", "hypot"),
)


@pytest.mark.report(
    "pytorch/pytorch:aten/src/ATen/native/native_functions.yaml",
    "a scalar tensor of the host joins an op with a device tensor",
)
def test_scalars_of_the_host(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "scalars_of_the_host.py", given=BINARY)


ANSWERS = [
    "torch.version.hip is None",
    "cuda.is_bf16_supported() and cuda.is_bf16_supported(including_emulation=False)",
    "cuda.is_tf32_supported() and cuda.get_device_capability() == (9, 0)",
    "(props.name, props.multi_processor_count, props.warp_size) == ('NVIDIA H200', 132, 32)",
    "(props.max_threads_per_multi_processor, props.regs_per_multiprocessor) == (2048, 65536)",
    "(props.shared_memory_per_block, props.shared_memory_per_block_optin) == (49152, 232448)",
    "props.shared_memory_per_multiprocessor == 233472 and props.L2_cache_size == 62914560",
    "not props.is_integrated and not props.is_multi_gpu_board and len(str(props.uuid)) == 36",
    "cuda.get_arch_list() == ['sm_90']",
    "torch.backends.cuda.is_built() and torch.backends.cuda.is_flash_attention_available()",
    "torch.distributed.is_nccl_available() and cuda.nccl.is_available([x])",
    "torch._C._cuda_getDeviceCount() == cuda.device_count()",
    "torch._C._cuda_getCurrentRawStream(0) == cuda.current_stream().cuda_stream == 0",
    "not torch._C._cuda_isCurrentStreamCapturing() and torch._C._has_cuda",
    "isinstance(x, cuda.FloatTensor) and cuda.FloatTensor([1.0]).is_cuda",
    "x.type() == 'torch.cuda.FloatTensor' and x.data_ptr() % 512 == 0",
    "str(torch.accelerator.current_accelerator()) == 'cuda'",
    "cuda.jiterator._create_jit_fn('template <typename T> T f(T x) { return -x; }')(x).tolist() == [-1] * 4",
    "cuda.profiler.start() is None and cuda.profiler.stop() is None",
    "cuda.nvtx.range_push('a') == 0 and cuda.nvtx.range_pop() == 0",
    "cuda.temperature() > 0 and cuda.power_draw() > 0 and cuda.clock_rate() > 0",
    "0 <= cuda.utilization() <= 100 and 0 <= cuda.memory_usage() <= 100",
    "'PyTorch version' in importlib.import_module('torch.utils.collect_env').get_pretty_env_info()",
]
MISSING_ANSWERS = [
    "tuple(map(int, torch.version.cuda.split('.'))) >= (12, 0)",
    "cuda.cudart().cudaMemGetInfo(0) == cuda.mem_get_info(0)",
    "cuda.cudart().cudaProfilerStart() == cuda.cudart().cudaError.success",
    "cuda.cudart().cudaProfilerStop() == cuda.cudart().cudaError.success",
    "cuda.check_error(0) is None",
    "'sm_90' in cuda.get_gencode_flags()",
    "torch.backends.cuda.cufft_plan_cache[0].max_size > 0",
    "torch.backends.cuda.cufft_plan_cache.clear() is None",
    "torch._C._cuda_getDriverVersion() >= 12000",
    "torch._C._cudnn is not None",
    "cuda.nccl.version() >= (2, 20)",
    "'NVIDIA H200' in collect_env.get_gpu_info(collect_env.run)",
    "cuda.device_count() == 1",
]


@pytest.mark.long
@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/cuda.html",
    "what libraries ask a GPU first: properties, versions, streams, NVML's figures",
)
@pytest.mark.parametrize("question", ANSWERS)
def test_answers(fork_cuda: PythonRunner, question: str) -> None:
    fork_cuda(PROGRAMS / "ask.py", given=question)


@pytest.mark.report(
    "NVIDIA/Megatron-LM:megatron/training/training.py",
    "`cudart()`, `torch.version.cuda`, plan caches, NCCL's version, one visible device",
)
@pytest.mark.parametrize("question", MISSING_ANSWERS)
def test_answers_of_nvidias_libraries(fork_cuda: PythonRunner, question: str) -> None:
    fork_cuda(PROGRAMS / "ask.py", given=question)


@pytest.mark.report("pytorch/torchtitan", "private names of `torch.cuda._graph_annotations`")
def test_annotations_of_graphs(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "annotations_of_graphs.py")


@pytest.mark.report("pytorch/ao", "experts of bfloat16: `grouped_mm`")
def test_grouped_products(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "grouped_products.py")


@pytest.mark.report("pytorch/ao", "experts of float8: `_scaled_grouped_mm` and `scaled_grouped_mm`")
def test_scaled_grouped_products(fork_cuda: PythonRunner) -> None:
    fork_cuda(PROGRAMS / "scaled_grouped_products.py")
