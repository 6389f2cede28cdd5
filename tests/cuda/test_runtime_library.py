"""``torch.cuda.cudart()``: the functions of the CUDA runtime library that PyTorch binds."""

from __future__ import annotations

from tests.conftest import PythonRunner

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


def test_errors_have_cudas_numbers_and_texts(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        cudart = torch.cuda.cudart()
        assert torch.cuda.is_initialized() and cudart is torch._C._cudart is torch.cuda.profiler.cudart()
        success = cudart.cudaError.success
        assert success == 0 and int(success) == 0 and success.name == "success", success
        assert str(success) == "cudaError.success" and repr(cudart.cudaError(2)) == "<cudaError.???: 2>"
        texts = {
            0: "no error", 1: "invalid argument", 2: "out of memory", 34: "CUDA driver is a stub library",
            100: "no CUDA-capable device is detected", 101: "invalid device ordinal",
            400: "invalid resource handle", 700: "an illegal memory access was encountered",
            710: "device-side assert triggered", 719: "unspecified launch failure",
            900: "operation not permitted when stream is capturing", 12345: "unrecognized error code",
        }
        for number, text in texts.items():
            assert cudart.cudaGetErrorString(cudart.cudaError(number)) == text, number
        raises("TypeError", "expected a cudaError, got int 2", lambda: cudart.cudaGetErrorString(2))
        for check_error in (torch.cuda.check_error, torch.cuda.profiler.check_error):
            assert check_error(0) is None and check_error(success) is None
            raises("CudaError", "out of memory (2)", lambda: check_error(2))
        assert issubclass(torch.cuda.CudaError, RuntimeError) and torch.cuda.cudaStatus.ERROR_NOT_READY == 34
        """,
        NAME,
    )


def test_profiles_are_started_and_stopped(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        from torch.autograd import DeviceType
        from torch.profiler import ProfilerActivity, profile
        cudart, x = torch.cuda.cudart(), torch.ones(8, device="cuda")
        with profile(activities=[ProfilerActivity.CUDA]) as prof:
            torch.cuda.check_error(cudart.cudaProfilerStop())
            x.sin()
            torch.cuda.check_error(cudart.cudaProfilerStart())
            x.cos()
        rows = [event.name for event in prof.events() if event.device_type == DeviceType.CUDA]
        assert len(rows) == 1 and "cos" in rows[0], rows
        with torch.cuda.profiler.profile():
            x.sin()
        """,
        NAME,
    )


def test_streams_by_handle(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import ctypes, torch_loom
        cudart = torch.cuda.cudart()
        for index in (0, 1):
            handle = ctypes.c_ulonglong(0)
            with torch.cuda.device(index):
                assert cudart.cudaStreamCreate(ctypes.addressof(handle)) == 0 and handle.value != 0
                stream = torch.cuda.ExternalStream(handle.value)
            assert stream.device == torch.device("cuda", index) and stream.cuda_stream == handle.value
            with torch.cuda.stream(stream):
                y = torch.arange(1000.0, device="cuda") * 2
            stream.synchronize()
            assert y.sum().item() == 999000 and y.device.index == index
            assert cudart.cudaStreamDestroy(handle.value) == 0
            assert cudart.cudaStreamDestroy(handle.value) == 400
        assert cudart.cudaStreamCreate(0) == 1
        assert cudart.cudaStreamDestroy(0) == 400
        assert cudart.cudaStreamDestroy(torch.cuda.Stream().cuda_stream) == 400  # PyTorch's own
        """,
        NAME,
    )


def test_memory_of_the_host_is_registered(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        cudart = torch.cuda.cudart()
        x = torch.zeros(1 << 20)
        place = x.data_ptr(), x.numel() * x.element_size()
        assert not x.is_pinned()
        assert cudart.cudaHostRegister(*place, 0) == cudart.cudaError.success and x.is_pinned()
        assert x.to("cuda", non_blocking=True).sum().item() == 0
        assert cudart.cudaHostGetDevicePointer(place[0], 0) == (0, place[0])
        assert cudart.cudaHostGetDevicePointer(place[0], 1) == (1, 0)
        assert cudart.cudaHostRegister(*place, 0) == 712
        assert cudart.cudaHostRegister(place[0] + 4096, 4096, 0) == 712
        assert cudart.cudaHostUnregister(x.data_ptr()) == 0 and not x.is_pinned()
        assert cudart.cudaHostUnregister(x.data_ptr()) == 713
        assert cudart.cudaHostGetDevicePointer(place[0], 0) == (1, 0)
        on_device = torch.zeros(4096, device="cuda")
        for address, size, flags in ((0, 16, 0), (place[0], 0, 0), (place[0], 4096, 1 << 8), (-8, 16, 0),
                                     (1 << 70, 16, 0), (on_device.data_ptr(), 4096, 0), (8, 4096, 0)):
            assert cudart.cudaHostRegister(address, size, flags) == 1, (address, size, flags)
        assert cudart.cudaHostUnregister(0) == 1
        for wrong in (lambda: cudart.cudaHostRegister("x", 1, 0), lambda: cudart.cudaHostUnregister(None),
                      lambda: cudart.cudaStreamCreate(1.5), lambda: cudart.cudaMemGetInfo("0")):
            raises("TypeError", "must be an int, got", wrong)
        """,
        NAME,
    )


def test_memory_of_each_device(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        cudart = torch.cuda.cudart()
        free, total = cudart.cudaMemGetInfo(1)
        assert (free, total) == (2 << 30, 2 << 30)
        x = torch.empty(100 << 20, dtype=torch.uint8, device="cuda:1")
        assert cudart.cudaMemGetInfo(1) == (free - (100 << 20), total) == torch.cuda.mem_get_info(1)
        assert cudart.cudaMemGetInfo(0) == (free, total)
        try:
            cudart.cudaMemGetInfo(2)
        except torch.AcceleratorError as error:
            assert "CUDA error: invalid device ordinal" in str(error)
        else:
            raise AssertionError
        """,
        NAME,
    )


def test_the_cache_of_transforms_plans(fork_python: PythonRunner) -> None:
    fork_python(
        """
        import torch_loom
        cache = torch.backends.cuda.cufft_plan_cache
        assert cache.max_size == cache[0].max_size == cache["cuda:1"].max_size == 4096
        cache[1].max_size = 10
        cache.max_size = 0  # of the current device
        assert [cache[index].max_size for index in (0, 1)] == [0, 10]
        with torch.cuda.device(1):
            assert cache.max_size == 10
        torch.fft.fft(torch.ones(8, device="cuda"))
        assert cache.size == cache[1].size == 0
        cache.clear()
        cache[1].clear()
        raises("RuntimeError", "must be non-negative", lambda: setattr(cache, "max_size", -1))
        raises("RuntimeError", "read-only property", lambda: setattr(cache, "size", 1))
        raises("RuntimeError", "but got device with index 2", lambda: cache[2])
        assert cache[1].max_size == 10
        """,
        NAME,
    )
