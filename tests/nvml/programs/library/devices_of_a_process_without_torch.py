import ast
import sys

import pynvml

h200 = ast.literal_eval(sys.argv[1])


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
total, kept = h200["memory_bytes"], h200["driver_memory_bytes"]
assert (memory.total, memory.used, memory.free) == (total, kept, total - kept)
newer = pynvml.nvmlDeviceGetMemoryInfo(second, version=pynvml.nvmlMemory_v2)
assert (newer.total, newer.reserved, newer.used) == (total, kept, 0)
assert pynvml.nvmlDeviceGetCudaComputeCapability(first) == (9, 0)
assert pynvml.nvmlDeviceGetNumGpuCores(first) == h200["num_cores"] * 128
assert pynvml.nvmlDeviceGetMemoryBusWidth(first) == h200["memory_bus_bits"]
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
assert pynvml.nvmlDeviceGetPowerUsage(first) == h200["power_idle_milliwatts"]
assert pynvml.nvmlDeviceGetEnforcedPowerLimit(first) == h200["power_max_milliwatts"]
assert pynvml.nvmlDeviceGetTemperature(first, 0) == h200["temperature_idle_celsius"]
assert pynvml.nvmlDeviceGetClockInfo(first, pynvml.NVML_CLOCK_SM) == h200["clock_idle_mhz"]
assert pynvml.nvmlDeviceGetMaxClockInfo(first, pynvml.NVML_CLOCK_SM) == h200["clock_mhz"]
assert pynvml.nvmlDeviceGetClockInfo(first, pynvml.NVML_CLOCK_MEM) == h200["memory_clock_mhz"]
assert pynvml.nvmlDeviceGetComputeRunningProcesses(first) == []
assert pynvml.nvmlDeviceGetEccMode(first) == [1, 1]
assert pynvml.nvmlDeviceGetP2PStatus(first, second, 0) == pynvml.NVML_P2P_STATUS_OK
assert pynvml.nvmlDeviceGetNvLinkState(first, h200["last_link"]) == 1
assert pynvml.nvmlDeviceGetTopologyCommonAncestor(first, second) == pynvml.NVML_TOPOLOGY_NODE
powers = pynvml.nvmlDeviceGetFieldValues(first, [pynvml.NVML_FI_DEV_POWER_INSTANT, 1])
assert powers[0].nvmlReturn == 0 and powers[0].value.uiVal == h200["power_idle_milliwatts"]
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
