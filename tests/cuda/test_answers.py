"""What PyTorch's Python and libraries ask of CUDA beside torch.cuda's public names."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


@pytest.mark.slow
def test_names_of_cuda_builds(warm_python: PythonRunner) -> None:
    """Functions that PyTorch's own Python calls by name do what torch.cuda's do; test_names_of_c has all."""
    warm_python(
        """
        import torch
        c = torch._C
        x = torch.ones(1000, device="cuda")
        c._cuda_setDevice(1)
        assert c._cuda_getDevice() == 1 == c._cuda_exchangeDevice(0) and torch.cuda.current_device() == 0
        side = torch.cuda.Stream()
        c._cuda_setStream(side.stream_id, side.device_index, side.device_type)
        assert torch.cuda.current_stream() == side
        assert c._cuda_getCurrentStream(0) == (side.stream_id, 0, side.device_type)
        assert c._cuda_getCurrentRawStream(0) == side.cuda_stream
        c._cuda_synchronize()
        assert c._cuda_memoryStats(0)["allocated_bytes"]["all"]["current"] == 4096
        assert c._cuda_memorySnapshot()["segments"]
        c._cuda_setMemoryFraction(0.5, 0)
        assert c._cuda_getMemoryFraction(0) == 0.5
        address = c._cuda_cudaCachingAllocator_raw_alloc(1000, 0)
        c._cuda_cudaCachingAllocator_raw_delete(address)
        assert isinstance(side, c._CudaStreamBase) and isinstance(torch.cuda.Event(), c._CudaEventBase)
        torch.backends.cudnn.benchmark_limit = 5
        assert c._cuda_get_cudnn_benchmark_limit() == 5
        try:
            c._cuda_getCheckpointState(0, (0, 1))
        except ValueError as error:
            assert "no private pool (0, 1)" in str(error)
        else:
            raise AssertionError
        assert "h200" in torch.__config__.show()
        handle = f"<torch.cuda.Stream device=cuda:0 cuda_stream={side.cuda_stream:#x}>"
        assert repr(side) == handle
        assert repr(torch.cuda.default_stream()) == "<torch.cuda.Stream device=cuda:0 cuda_stream=0x0>"
        import warnings
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            assert torch.has_cuda and torch.has_cudnn  # PyTorch's deprecated names
        # PyTorch's own modules import private names of these.
        import torch.utils.viz._cycles
        import torch._inductor.cudagraph_trees
        """,
        NAME,
    )


@pytest.mark.slow
def test_profiles_have_rows_of_the_device(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile, supported_activities

        assert supported_activities() == {ProfilerActivity.CPU, ProfilerActivity.CUDA}
        x = torch.randn(32, 32, device="cuda")
        for activities in (None, [ProfilerActivity.CUDA], [ProfilerActivity.CPU, ProfilerActivity.CUDA]):
            with profile(activities=activities) as prof:
                (x @ x).cpu()
                x.zero_()
            rows = [event.name for event in prof.events() if event.device_type == DeviceType.CUDA]
            assert rows == ["cuda::gemm<mm>", "Memcpy DtoH (Device -> Pageable)", "Memset (Device)"], rows
            host = [event.name for event in prof.events() if event.device_type == DeviceType.CPU]
            assert {"cudaLaunchKernel", "cudaMemcpyAsync", "cudaMemsetAsync"} <= set(host), host
        assert "CUDA time total" in prof.key_averages().table(sort_by="cuda_time_total")
        [product] = [event for event in prof.key_averages() if event.key == "aten::mm"]
        assert product.device_time_total > 0
        with profile(activities=[ProfilerActivity.CPU]) as prof:
            x @ x
        assert {event.device_type for event in prof.events()} == {DeviceType.CPU}
        """,
        NAME,
    )


@pytest.mark.slow
def test_other_libraries_do_not_get_an_address(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import numpy, torch
        from torch.utils import dlpack

        x = torch.arange(4.0, device="cuda")
        assert x.__dlpack_device__()[0] == 12
        assert torch.from_dlpack(x).data_ptr() == x.data_ptr()
        for capsule in (dlpack.to_dlpack(x), x.__dlpack__(), x.__dlpack__(max_version=(1, 0))):
            taken = dlpack.from_dlpack(capsule)
            assert taken.device == x.device and taken.tolist() == x.tolist()
        assert torch.asarray(dlpack.to_dlpack(x)).data_ptr() == x.data_ptr()
        assert torch.asarray(dlpack.to_dlpack(x), copy=True, dtype=torch.half).tolist() == [0, 1, 2, 3]
        on_cpu = torch.ones(2)
        assert torch.from_dlpack(on_cpu).equal(on_cpu) and numpy.from_dlpack(on_cpu).tolist() == [1, 1]
        for refused in (lambda: numpy.from_dlpack(x), lambda: numpy.asarray(x), lambda: x.numpy()):
            try:
                refused()
            except (TypeError, BufferError, RuntimeError, ValueError):
                pass
            else:
                raise AssertionError
        assert not hasattr(x, "__cuda_array_interface__")
        """,
        NAME,
    )


@pytest.mark.slow
def test_inductor_compiles_models_to_cpp(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch._inductor import config

        config.cpp_cache_precompile_headers = False  # what they take is not won back by so few kernels
        torch.manual_seed(0)
        model = torch.nn.Sequential(torch.nn.Linear(4, 8), torch.nn.GELU(), torch.nn.Linear(8, 2)).cuda()
        x = torch.randn(3, 4, device="cuda", requires_grad=True)
        expected = model(x)
        compiled = torch.compile(model)
        compiled(x)
        with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CUDA]) as profile:
            found = compiled(x)
        assert any("cpp_fused" in row.key for row in profile.key_averages())
        torch.testing.assert_close(found, expected)
        found.sum().backward()
        assert x.grad.is_cuda
        """,
        NAME,
    )


@pytest.mark.slow
@pytest.mark.parametrize(
    ("text", "count"),
    [("1", 1), ("1,0", 2), ("", 0), ("-1", 0), ("0,9,1", 1), ("0,0", 0), ("GPU-8932f937", 0)],
)
def test_visible_devices(warm_python: PythonRunner, text: str, count: int) -> None:
    warm_python(
        f"""
        import torch
        assert torch.cuda.device_count() == {count} and torch.cuda.is_available() == {count > 0}
        if {count}:
            first = {text!r}.split(",")[0]
            assert torch.cuda.get_device_properties(0).extra["physical_index"] == int(first)
        """,
        {**NAME, "CUDA_VISIBLE_DEVICES": text, "PYTORCH_NVML_BASED_CUDA_CHECK": "1"},
    )


@pytest.mark.slow
def test_variables_of_cuda(run_python: PythonRunner) -> None:
    program = """
        import torch
        from torch_loom import config
        settings = config.resolve()
        assert (settings.launch, settings.sanitizer) == {expected}, settings
        x = torch.zeros(100, device="cuda")
        with torch.cuda.stream(torch.cuda.Stream()):
            try:
                x.add_(1)
            except torch.cuda._sanitizer.CUDASanitizerErrors:
                assert settings.sanitizer
            else:
                assert not settings.sanitizer
        """
    variables = {"CUDA_LAUNCH_BLOCKING": "1", "TORCH_CUDA_SANITIZER": "1"}
    run_python(program.format(expected=("blocking", True)), {**NAME, **variables})
    run_python(program.format(expected=("auto", False)), NAME)
    # Our own setting comes first, and under another name CUDA's mean nothing.
    ours = {"TORCH_LOOM_LAUNCH": "chaos"}
    run_python(program.format(expected=("chaos", True)), {**NAME, **variables, **ours})
    run_python(
        "from torch_loom import config; assert config.resolve().launch == 'auto'",
        {"CUDA_LAUNCH_BLOCKING": "1", "CUDA_VISIBLE_DEVICES": "0"},
    )


@pytest.mark.slow
def test_cuda_sources_are_refused(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        from torch.utils import cpp_extension
        try:
            cpp_extension._is_cuda_file("kernels/scan.cu")
        except NotImplementedError as error:
            assert "kernels/scan.cu" in str(error) and "torch ops" in str(error)
        else:
            raise AssertionError
        assert not cpp_extension._is_cuda_file("host.cpp")
        """,
        NAME,
    )


@pytest.mark.slow
def test_triton_kernels_are_refused_by_name(warm_python: PythonRunner, tmp_path: Path) -> None:
    """With a package of Triton's structure: where Triton is installed, tests/libraries/triton_kernels.py."""
    runtime = tmp_path / "triton" / "runtime"
    runtime.mkdir(parents=True)
    (tmp_path / "triton" / "__init__.py").write_text("from triton.runtime.jit import JITFunction\n")
    (runtime / "__init__.py").write_text("from triton.runtime import autotuner, jit\n")
    (runtime / "jit.py").write_text(
        "class JITFunction:\n"
        "    def __init__(self, fn): self.fn = fn\n"
        "    def run(self, *args, **kwargs): raise AssertionError('libcuda.so cannot found!')\n"
    )
    (runtime / "autotuner.py").write_text(
        "class Autotuner:\n"
        "    def __init__(self, fn, configs): self.fn, self.configs = fn, configs\n"
        "    def _bench(self, *args, config, **meta): raise AssertionError('libcuda.so cannot found!')\n"
        "    def run(self, *args, **kwargs):\n"
        "        min(self.configs, key=lambda config: self._bench(*args, config=config, **kwargs))\n"
        "        return self.fn.run(*args, **kwargs)\n"
    )
    warm_python(
        f"""
        import sys
        sys.path.insert(0, {str(tmp_path)!r})
        import torch, triton
        from triton.runtime.autotuner import Autotuner

        def scale_kernel(x): ...

        kernel = triton.JITFunction(scale_kernel)
        for launch in (kernel.run, Autotuner(kernel, [1, 2]).run):
            try:
                launch(torch.ones(3, device="cuda"))
            except NotImplementedError as error:
                assert "scale_kernel" in str(error) and "TRITON_INTERPRET=1" in str(error), error
                assert "\\n" not in str(error)
            else:
                raise AssertionError
        """,
        NAME,
    )


@pytest.mark.slow
def test_only_devices_in_use_have_a_context(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch

        def contexts():
            return [torch._C._cuda_hasPrimaryContext(device) for device in range(torch.cuda.device_count())]

        assert contexts() == [False, False]
        torch.cuda.init()
        assert contexts() == [False, False]
        x = torch.ones(3, device="cuda:1")
        torch.zeros(3).copy_(x)
        str(x), x.is_pinned(), torch.ones(3).pin_memory().is_pinned()
        assert contexts() == [False, True]
        torch.cuda.Stream(0)
        assert contexts() == [True, True]
        try:
            torch._C._cuda_hasPrimaryContext(2)
        except RuntimeError as error:
            assert "expects a valid device index, but got device_index=2" in str(error)
        else:
            raise AssertionError
        """,
        NAME,
    )


def test_an_op_without_a_kernel_for_cuda_has_none(warm_python: PythonRunner) -> None:
    warm_python(
        """
        import torch
        has = torch._C._dispatch_has_computed_kernel_for_dispatch_key
        library = torch.library.Library("asked", "DEF")
        library.define("nothing(Tensor x) -> Tensor")
        library.define("host(Tensor x) -> Tensor")
        library.define("device.out(Tensor x) -> Tensor")
        library.define("composite(Tensor x) -> Tensor")
        library.impl("host", lambda x: x + 1, "CPU")
        library.impl("device.out", lambda x: x + 2, "CUDA")
        library.impl("composite", lambda x: x + 3, "CompositeExplicitAutograd")
        names = ("nothing", "host", "device.out", "composite")
        found = {name: has(f"asked::{name}", "CUDA") for name in names}
        assert found == {"nothing": False, "host": False, "device.out": True, "composite": True}, found
        assert has("asked::host", "CPU") and has("aten::add.Tensor", "CUDA") and has("aten::relu", "CUDA")

        # The older way to write an op asks so whether someone else has written it.
        import warnings
        warnings.simplefilter("ignore")
        import torch._custom_ops as custom_ops
        @custom_ops.custom_op("asked::twice")
        def twice(x: torch.Tensor) -> torch.Tensor: ...
        @custom_ops.impl("asked::twice", device_types="cuda")
        def on_cuda(x):
            return x * 2
        assert torch.ops.asked.twice(torch.ones(2, device="cuda")).tolist() == [2, 2]
        """,
        {"TORCH_LOOM_DEVICE_NAME": "cuda"},
    )
