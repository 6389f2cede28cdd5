"""What libraries ask of torch.cuda and call. Programs of those to install are in tests/libraries."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner

BINARY = (
    *("maximum", "minimum", "mul", "add", "sub", "div", "pow", "fmod"),
    *("remainder", "atan2", "le", "lt", "eq", "fmax", "hypot"),
)


@pytest.mark.report(
    "pytorch/pytorch:aten/src/ATen/native/native_functions.yaml",
    "a scalar tensor of the host joins an op with a device tensor",
)
def test_scalars_of_the_host(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        f"""
        x, scalar, zero_dim = torch.ones(3, device="cuda"), torch.tensor(2.0), torch.ones((), device="cuda")
        for name in {BINARY!r}:
            op = getattr(torch, name)
            for a, b in ((x, scalar), (scalar, x), (zero_dim, scalar)):
                found = op(a, b)
                assert found.is_cuda and torch.equal(found.cpu(), op(a.cpu(), b.cpu())), name
        raises("RuntimeError", "method wrapper_CUDA_logaddexp", lambda: torch.logaddexp(x, scalar))
        """
    )


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
ASK = """
import importlib
from torch.utils import collect_env
cuda, x = torch.cuda, torch.ones(4, device="cuda")
props = cuda.get_device_properties(0)
"""


@pytest.mark.report(
    "https://docs.pytorch.org/docs/stable/cuda.html",
    "what libraries ask a GPU first: properties, versions, streams, NVML's figures",
)
@pytest.mark.parametrize("question", ANSWERS)
def test_answers(fork_cuda: PythonRunner, question: str) -> None:
    fork_cuda(ASK + f"assert {question}, {question.partition(' ==')[0]}\n")


@pytest.mark.report(
    "NVIDIA/Megatron-LM:megatron/training/training.py",
    "`cudart()`, `torch.version.cuda`, plan caches, NCCL's version, one visible device",
)
@pytest.mark.parametrize("question", MISSING_ANSWERS)
def test_answers_of_nvidias_libraries(fork_cuda: PythonRunner, question: str) -> None:
    fork_cuda(ASK + f"assert {question}, {question.partition(' ==')[0]}\n")


@pytest.mark.report("pytorch/torchtitan", "private names of `torch.cuda._graph_annotations`")
def test_annotations_of_graphs(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        """
        from torch.cuda._graph_annotations import _is_tools_id_unavailable
        assert isinstance(_is_tools_id_unavailable(), bool)
        """
    )


GROUPED = """
import torch.nn.functional as F
from torch.nn.functional import ScalingType
torch.manual_seed(0)
offsets = torch.tensor([16, 32], device="cuda", dtype=torch.int32)
a = torch.randn(32, 64, device="cuda", dtype=torch.bfloat16)
b = torch.randn(2, 48, 64, device="cuda", dtype=torch.bfloat16).transpose(-2, -1)  # column-major

def experts(a, b):
    "Each half of the rows with its own matrix."
    return torch.cat([half.float() @ matrix.float() for half, matrix in zip(a.split(16), b, strict=True)])

a8, b8 = a.to(torch.float8_e4m3fn), b.transpose(-2, -1).to(torch.float8_e4m3fn).transpose(-2, -1)
scale_a, scale_b = torch.rand(32, device="cuda") + 0.5, torch.rand(2, 48, device="cuda") + 0.5
scaled = torch.cat([
    half.float() @ matrix.float() * rows[:, None] * columns
    for half, matrix, rows, columns in zip(a8.split(16), b8, scale_a.split(16), scale_b, strict=True)
])
"""


@pytest.mark.report("pytorch/ao", "experts of bfloat16: `grouped_mm`")
def test_grouped_products(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        GROUPED
        + """
found = F.grouped_mm(a, b, offs=offsets)
torch.testing.assert_close(found.float(), experts(a, b), rtol=0.02, atol=0.1)
one = F.scaled_mm(
    a8, b8[0], scale_a=scale_a[:, None], scale_recipe_a=ScalingType.RowWise,
    scale_b=scale_b[:1], scale_recipe_b=ScalingType.RowWise, output_dtype=torch.bfloat16,
)
torch.testing.assert_close(one[:16].float(), scaled[:16], rtol=0.02, atol=0.1)
"""
    )


@pytest.mark.report("pytorch/ao", "experts of float8: `_scaled_grouped_mm` and `scaled_grouped_mm`")
def test_scaled_grouped_products(fork_cuda: PythonRunner) -> None:
    fork_cuda(
        GROUPED
        + """
found = torch._scaled_grouped_mm(a8, b8, scale_a, scale_b, offs=offsets, out_dtype=torch.bfloat16)
torch.testing.assert_close(found.float(), scaled, rtol=0.02, atol=0.1)
found = F.scaled_grouped_mm(
    a8, b8, scale_a=scale_a, scale_recipe_a=ScalingType.RowWise,
    scale_b=scale_b, scale_recipe_b=ScalingType.RowWise, offs=offsets, output_dtype=torch.bfloat16,
)
torch.testing.assert_close(found.float(), scaled, rtol=0.02, atol=0.1)
"""
    )
