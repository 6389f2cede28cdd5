"""NVML's library: asked by nvidia-ml-py and nvitop as installed, in processes with torch and without."""

from __future__ import annotations

import pytest

from tests.conftest import PythonRunner
from tests.nvml.conftest import Environment, Program
from torch_loom import chips

NAME = {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_DEVICES": "2"}


def test_devices_of_a_process_without_torch(under_loom_run: Environment, run_without_torch: Program) -> None:
    h200 = chips.load("h200")
    run_without_torch(
        f"""
        def error(call, *arguments):
            try:
                call(*arguments)
            except pynvml.NVMLError as error:
                return error.value
        assert error(pynvml.nvmlDeviceGetCount) == pynvml.NVML_ERROR_UNINITIALIZED
        pynvml.nvmlInit()
        pynvml.nvmlInit()
        pynvml.nvmlShutdown()
        assert pynvml.nvmlDeviceGetCount() == 2
        first, second = (pynvml.nvmlDeviceGetHandleByIndex(index) for index in (0, 1))
        assert pynvml.nvmlDeviceGetName(first) == "NVIDIA H200"
        memory = pynvml.nvmlDeviceGetMemoryInfo(second)
        assert (memory.total, memory.used, memory.free) == ({h200.memory_bytes}, 0, {h200.memory_bytes})
        newer = pynvml.nvmlDeviceGetMemoryInfo(second, version=pynvml.nvmlMemory_v2)
        assert (newer.total, newer.reserved, newer.used) == ({h200.memory_bytes}, 0, 0)
        assert pynvml.nvmlDeviceGetCudaComputeCapability(first) == (9, 0)
        assert pynvml.nvmlDeviceGetNumGpuCores(first) == {h200.num_cores} * 128
        assert pynvml.nvmlDeviceGetMemoryBusWidth(first) == {h200.memory_bus_bits}
        assert pynvml.nvmlDeviceGetArchitecture(first) == pynvml.NVML_DEVICE_ARCH_HOPPER
        assert pynvml.nvmlDeviceGetBrand(first) == pynvml.NVML_BRAND_NVIDIA
        uuids = [pynvml.nvmlDeviceGetUUID(handle) for handle in (first, second)]
        assert len(set(uuids)) == 2 and all(len(uuid) == 40 for uuid in uuids)
        found = pynvml.nvmlDeviceGetHandleByUUID(uuids[1])
        assert pynvml.nvmlDeviceGetIndex(found) == 1
        place = pynvml.nvmlDeviceGetPciInfo(second)
        assert (place.busId, place.busIdLegacy, place.bus) == ("00000000:02:00.0", "0000:02:00.0", 2)
        for text in ("00000000:02:00.0", "0000:02:00.0", "02:00.0"):
            assert pynvml.nvmlDeviceGetIndex(pynvml.nvmlDeviceGetHandleByPciBusId(text.encode())) == 1
        # Nothing has run in the last second.
        rates = pynvml.nvmlDeviceGetUtilizationRates(first)
        assert (rates.gpu, rates.memory) == (0, 0)
        assert pynvml.nvmlDeviceGetPowerUsage(first) == {round(1000 * h200.power_idle_watts)}
        assert pynvml.nvmlDeviceGetEnforcedPowerLimit(first) == {round(1000 * h200.power_max_watts)}
        assert pynvml.nvmlDeviceGetTemperature(first, 0) == {h200.temperature_idle_celsius}
        assert pynvml.nvmlDeviceGetClockInfo(first, pynvml.NVML_CLOCK_SM) == {h200.clock_idle_mhz}
        assert pynvml.nvmlDeviceGetMaxClockInfo(first, pynvml.NVML_CLOCK_SM) == {h200.clock_mhz}
        assert pynvml.nvmlDeviceGetClockInfo(first, pynvml.NVML_CLOCK_MEM) == {h200.memory_clock_mhz}
        assert pynvml.nvmlDeviceGetComputeRunningProcesses(first) == []
        assert pynvml.nvmlDeviceGetEccMode(first) == [1, 1]
        assert pynvml.nvmlDeviceGetP2PStatus(first, second, 0) == pynvml.NVML_P2P_STATUS_OK
        assert pynvml.nvmlDeviceGetNvLinkState(first, {h200.num_links - 1}) == 1
        assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == pynvml.NVML_TOPOLOGY_NODE
        powers = pynvml.nvmlDeviceGetFieldValues(first, [pynvml.NVML_FI_DEV_POWER_INSTANT, 1])
        assert powers[0].nvmlReturn == 0 and powers[0].value.uiVal == {round(1000 * h200.power_idle_watts)}
        assert powers[1].nvmlReturn == pynvml.NVML_ERROR_NOT_SUPPORTED
        # What there is not.
        assert error(pynvml.nvmlDeviceGetHandleByIndex, 2) == pynvml.NVML_ERROR_INVALID_ARGUMENT
        assert error(pynvml.nvmlDeviceGetHandleByUUID, "GPU-0") == pynvml.NVML_ERROR_NOT_FOUND
        assert error(pynvml.nvmlDeviceGetHandleByPciBusId, b"0000:09:00.0") == pynvml.NVML_ERROR_NOT_FOUND
        assert error(pynvml.nvmlDeviceGetName, None) == pynvml.NVML_ERROR_INVALID_ARGUMENT
        assert error(pynvml.nvmlDeviceGetFanSpeed, first) == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert error(pynvml.nvmlDeviceGetMigMode, first) == pynvml.NVML_ERROR_NOT_SUPPORTED
        assert error(pynvml.nvmlDeviceGetNvLinkState, first, 99) == pynvml.NVML_ERROR_INVALID_ARGUMENT
        assert pynvml.nvmlSystemGetCudaDriverVersion() == 13000
        assert pynvml.nvmlSystemGetDriverVersion().startswith("580.")
        pynvml.nvmlShutdown()
        assert error(pynvml.nvmlDeviceGetCount) == error(pynvml.nvmlShutdown) == 1
        # A handle stays good from one use to the next.
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetIndex(second) == 1
        """,
        under_loom_run(),
    )


def test_every_function_answers_or_refuses(under_loom_run: Environment, run_without_torch: Program) -> None:
    """Of nvidia-ml-py: with a device and zeros, or where it wants a structure, room for one."""
    done = run_without_torch(
        """
        import ctypes, faulthandler, inspect
        faulthandler.enable()
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)

        def argument(name, other):
            return device if name.lower() in ("handle", "device", "device1", "device2") else other()

        reached = refused = 0
        groups = ("Device", "System", "Unit", "Vgpu", "Gpu", "Gpm")
        for name, function in sorted(vars(pynvml).items()):
            if not name.startswith(tuple("nvml" + group for group in groups)) or not callable(function):
                continue
            if inspect.isclass(function):
                continue
            names = [p.name for p in inspect.signature(function).parameters.values() if p.default is p.empty]
            for other in (int, lambda: ctypes.create_string_buffer(1 << 16), lambda: b"", list):
                try:
                    function(*(argument(each, other) for each in names))
                except pynvml.NVMLError as error:
                    refused += 1
                    assert error.value != pynvml.NVML_ERROR_UNINITIALIZED, name
                except (TypeError, ValueError, AttributeError, ctypes.ArgumentError):
                    continue  # nvidia-ml-py wants another type
                reached += 1
                break
            else:
                print(name)
        assert reached > 300 and refused > 200, (reached, refused)
        """,
        under_loom_run(),
    )
    # These want structures of their own, and would be reached with those.
    assert len(done.stdout.split()) < 20, done.stdout


def test_threads(under_loom_run: Environment, run_without_torch: Program) -> None:
    run_without_torch(
        """
        import threading
        failures = []
        def ask():
            try:
                for _ in range(200):
                    pynvml.nvmlInit()
                    handle = pynvml.nvmlDeviceGetHandleByIndex(1)
                    assert pynvml.nvmlDeviceGetIndex(handle) == 1
                    assert pynvml.nvmlDeviceGetMemoryInfo(handle).used == 0
                    pynvml.nvmlShutdown()
            except BaseException as error:
                failures.append(error)
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert not failures, failures
        """,
        under_loom_run(),
    )


def test_a_chip_that_is_no_gpu(under_loom_run: Environment, run_without_torch: Program) -> None:
    run_without_torch(
        """
        pynvml.nvmlInit()
        device = pynvml.nvmlDeviceGetHandleByIndex(0)
        assert pynvml.nvmlDeviceGetName(device) == "atom"
        assert pynvml.nvmlDeviceGetMemoryInfo(device).total == 3 << 30
        for ask in (pynvml.nvmlDeviceGetEccMode, pynvml.nvmlDeviceGetNumGpuCores):
            try:
                ask(device)
            except pynvml.NVMLError_NotSupported:
                continue
            raise AssertionError(ask)
        """,
        under_loom_run(TORCH_LOOM_CHIP="atom", TORCH_LOOM_MEMORY="3GiB"),
    )


def test_settings_of_a_process_itself_count(under_loom_run: Environment, run_without_torch: Program) -> None:
    """What was described under other settings is described anew, by a process that has no torch either."""
    environment = under_loom_run()
    environment |= {"TORCH_LOOM_CHIP": "a100,h100", "TORCH_LOOM_DEVICES": "2"}
    run_without_torch(
        f"""
        pynvml.nvmlInit()
        devices = [pynvml.nvmlDeviceGetHandleByIndex(index) for index in range(pynvml.nvmlDeviceGetCount())]
        names = [pynvml.nvmlDeviceGetName(device) for device in devices]
        assert names == [{chips.load("a100").product_name!r}, {chips.load("h100").product_name!r}], names
        """,
        environment,
    )


@pytest.mark.parametrize(
    ("changed", "words"),
    [({"TORCH_LOOM_CHIP": "h2000"}, "There is no chip 'h2000'"), ({"TORCH_LOOM_NVML": None}, "")],
    ids=["bad setting", "outside of loom run"],
)
def test_no_driver(
    under_loom_run: Environment, run_without_torch: Program, changed: dict[str, str | None], words: str
) -> None:
    merged = {**under_loom_run(), **changed}
    done = run_without_torch(
        """
        try:
            pynvml.nvmlInit()
        except pynvml.NVMLError as error:
            assert error.value == pynvml.NVML_ERROR_DRIVER_NOT_LOADED
        else:
            raise AssertionError
        """,
        {name: value for name, value in merged.items() if value is not None},
    )
    assert words in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(("version", "driver"), [("12.8", "570"), ("12.7", "570"), ("99.9", "595")])
def test_versions(under_loom_run: Environment, run_without_torch: Program, version: str, driver: str) -> None:
    run_without_torch(
        f"""
        pynvml.nvmlInit()
        assert pynvml.nvmlSystemGetDriverVersion().startswith("{driver}.")
        number = pynvml.nvmlSystemGetCudaDriverVersion()
        assert f"{{number // 1000}}.{{number % 1000 // 10}}" == "{version}"
        assert pynvml.nvmlSystemGetNVMLVersion().startswith("{version.split(".")[0]}.{driver}.")
        """,
        under_loom_run(TORCH_LOOM_CUDA_VERSION=version),
    )


def test_nvitop(under_loom_run: Environment, run_without_torch: Program) -> None:
    run_without_torch(
        """
        from nvitop import Device
        first, second = Device.all()
        assert (first.name(), first.index, second.index) == ("NVIDIA A100-SXM4-80GB", 0, 1)
        assert first.memory_used() == 0 and first.gpu_utilization() == 0 and first.processes() == {}
        assert first.cuda_compute_capability() == (8, 0) and first.fan_speed() == "N/A"
        assert first.power_usage() > 0 and first.total_volatile_uncorrected_ecc_errors() == 0
        """,
        under_loom_run(TORCH_LOOM_CHIP="a100"),
    )


@pytest.mark.slow
def test_agrees_with_torch_cuda(warm_python: PythonRunner) -> None:
    """Memory, and what a kernel that runs for all of a second makes of a device."""
    warm_python(
        """
        import os, subprocess, sys, torch, pynvml
        pynvml.nvmlInit()  # before the first use of a device
        device = pynvml.nvmlDeviceGetHandleByIndex(1)
        x = torch.ones(10 << 20, device="cuda:1")
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        assert (memory.total, memory.used) == (2 << 30, 40 << 20)
        assert memory.used == torch.cuda.device_memory_used(1)
        [process] = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        assert (process.pid, process.usedGpuMemory) == (os.getpid(), 40 << 20)
        uuid = torch.cuda.get_device_properties(1).uuid
        assert pynvml.nvmlDeviceGetUUID(device) == f"GPU-{uuid}"
        side = torch.cuda.Stream(1)
        with torch.cuda.device(1), torch.cuda.stream(side):
            torch.cuda._sleep(int(4e9))
        while torch.cuda.utilization(1) < 100:
            assert not side.query()
        rates = pynvml.nvmlDeviceGetUtilizationRates(device)
        found = [
            rates.gpu,
            rates.memory,
            round(pynvml.nvmlDeviceGetPowerUsage(device) / 10_000),
            pynvml.nvmlDeviceGetTemperature(device, 0),
            pynvml.nvmlDeviceGetClockInfo(device, pynvml.NVML_CLOCK_SM),
        ]
        expected = [
            torch.cuda.utilization(1),
            torch.cuda.memory_usage(1),
            round(torch.cuda.power_draw(1) / 10_000),
            torch.cuda.temperature(1),
            torch.cuda.clock_rate(1),
        ]
        assert not side.query(), "the kernel has ended before both were asked"
        assert found == expected == [100, 100, 70, 85, 1980], (found, expected)
        # Another process, that only has the environment.
        program = "; ".join((
            "import pynvml",
            "pynvml.nvmlInit()",
            "device = pynvml.nvmlDeviceGetHandleByIndex(1)",
            "busy = pynvml.nvmlDeviceGetUtilizationRates(device).gpu > 0",
            "print(pynvml.nvmlDeviceGetMemoryInfo(device).used, busy)",
        ))
        child = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
        assert child.stdout == f"{40 << 20} True\\n", child
        """,
        {**NAME, "TORCH_LOOM_MACHINE": "nvml_agrees", "TORCH_LOOM_CLOCK": "wall"},
    )


@pytest.mark.slow
@pytest.mark.parametrize("machine", ["none", "nvml_fork"])
def test_configured_devices_and_forked_children(warm_python: PythonRunner, machine: str) -> None:
    warm_python(
        f"""
        import os, torch, pynvml
        torch.cuda.configure(chip="a100", devices=3)
        x = torch.ones(10 << 20, device="cuda")
        def used():
            pynvml.nvmlInit()
            assert pynvml.nvmlDeviceGetCount() == 3
            device = pynvml.nvmlDeviceGetHandleByIndex(0)
            assert pynvml.nvmlDeviceGetName(device) == torch.cuda.get_device_name()
            users = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
            return [(each.pid, each.usedGpuMemory) for each in users]
        assert used() == [(os.getpid(), 40 << 20)]
        parent, child = os.getpid(), os.fork()
        if child == 0:
            try:
                device = pynvml.nvmlDeviceGetHandleByIndex(0)
                found = [each.pid for each in pynvml.nvmlDeviceGetComputeRunningProcesses(device)]
                os._exit(0 if found == ([] if {machine!r} == "none" else [parent]) else 1)
            finally:
                os._exit(2)
        assert os.waitpid(child, 0)[1] == 0
        assert used() == [(parent, 40 << 20)], "asking has given up the lock of the parent"
        """,
        {"TORCH_LOOM_DEVICE_NAME": "cuda", "TORCH_LOOM_MACHINE": machine},
    )


@pytest.mark.slow
def test_without_nvidia_ml_py(warm_python: PythonRunner) -> None:
    """The functions that the package has itself, under another name of the devices."""
    warm_python(
        """
        import os, torch
        import torch_loom.compat.nvml
        from torch_loom.compat.nvml import pynvml
        from torch_loom.errors import NotApplicableError
        try:
            pynvml.nvmlDeviceGetCount()
        except pynvml.NVMLError as error:
            assert error.value == pynvml.NVML_ERROR_UNINITIALIZED
        else:
            raise AssertionError
        pynvml.nvmlInit()
        assert pynvml.nvmlDeviceGetCount() == 2
        x = torch.ones(10 << 20, device="loom:1")
        device = pynvml.nvmlDeviceGetHandleByIndex(1)
        memory = pynvml.nvmlDeviceGetMemoryInfo(device)
        assert (memory.total, memory.used, memory.free) == (2 << 30, 40 << 20, (2 << 30) - (40 << 20))
        assert pynvml.nvmlDeviceGetName(device) == "loom1"
        same = pynvml.nvmlDeviceGetHandleByUUID(pynvml.nvmlDeviceGetUUID(device))
        assert pynvml.nvmlDeviceGetIndex(same) == 1
        [process] = pynvml.nvmlDeviceGetComputeRunningProcesses(device)
        assert (process.pid, process.usedGpuMemory) == (os.getpid(), 40 << 20)
        assert 0 <= pynvml.nvmlDeviceGetUtilizationRates(device).gpu <= 100
        try:
            pynvml.nvmlDeviceGetPlatformInfo(device)
        except NotApplicableError as error:
            assert "nvidia-ml-py" in str(error)
        else:
            raise AssertionError
        import pynvml as installed
        installed.nvmlInit()
        assert installed.nvmlDeviceGetCount() == 2
        """,
        {"TORCH_LOOM_MEMORY": "2GiB", "TORCH_LOOM_MACHINE": "nvml_test_of_loom"},
    )
