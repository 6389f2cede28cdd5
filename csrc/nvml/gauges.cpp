// What a device does now. Utilisation and memory are measured; power, temperature and clock are simulated
// from them, as torch_loom/device/telemetry has it.
#include <algorithm>
#include <cmath>

#include "nvml/session.h"
#include "util/clock.h"

using namespace loom::nvml;
namespace telemetry = loom::telemetry;

namespace {

constexpr unsigned kNoInstance = 0xFFFFFFFF;

using telemetry::Busy;
using telemetry::Process;

Busy busy_of(const std::vector<Process>& processes) {
  return telemetry::busy_share(processes, loom::clock::host_ticks());
}
Busy busy_of(const Device& device) { return busy_of(processes_of(device)); }

// What was busy at all is not 0.
unsigned percent(double share) {
  const auto rounded = static_cast<unsigned>(std::nearbyint(100 * share));
  return std::min(100U, std::max(rounded, share > 0 ? 1U : 0U));
}

double between(double low, double high, double share) { return low + (high - low) * share; }

int milliwatts(double watts) { return static_cast<int>(std::nearbyint(1000 * watts)); }

// The capacity is each process's own, so that together they may have taken more.
uint64_t used_bytes(const Device& device) {
  uint64_t sum = 0;
  for (const Process& process : processes_of(device)) sum += process.memory_bytes;
  return std::min(sum, device.memory_bytes - device.driver_memory_bytes);
}

std::vector<Process> users_of(const Device& device) {
  std::vector<Process> users = processes_of(device);
  std::erase_if(users, [](const Process& process) { return process.memory_bytes == 0; });
  return users;
}

template <class Item, class Make>
Return put_users(Handle handle, unsigned* count, Item* out, Make make) {
  return with_device(handle, [&](const Device& device) {
    const std::vector<Process> users = users_of(device);
    return put_list(count, out, users.size(), [&](size_t i) { return make(users[i]); });
  });
}

Return put_nobody(Handle handle, unsigned* count) {
  return with_device(handle, [&](const Device&) { return put(count, 0); });
}

Return put_clock(Handle handle, unsigned domain, unsigned* out, bool is_highest) {
  return with_device(handle, [&](const Device& device) {
    if (domain >= kNumClocks) return kInvalidArgument;
    if (domain == kClockMemory) return put_known(out, device.memory_clock_mhz);
    if (domain == kClockVideo || device.clock_mhz == 0) return kNotSupported;
    const bool is_high = is_highest || device.clock_idle_mhz == 0 || busy_of(device).kernels > 0;
    return put(out, is_high ? device.clock_mhz : device.clock_idle_mhz);
  });
}

Return put_power(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) {
    if (device.power_max_watts == 0) return kNotSupported;
    const double share = busy_of(device).kernels;
    return put(out, milliwatts(between(device.power_idle_watts, device.power_max_watts, share)));
  });
}

template <class Out>
Return put_temperature(Handle handle, unsigned sensor, Out* out) {
  return with_device(handle, [&](const Device& device) {
    if (sensor != 0) return kInvalidArgument;
    if (device.temperature_max_celsius == 0) return kNotSupported;
    const double share = busy_of(device).kernels;
    const double degrees = between(device.temperature_idle_celsius, device.temperature_max_celsius, share);
    return put(out, std::nearbyint(degrees));
  });
}

// Engines of video, which have nothing to do.
Return put_idle_engine(Handle handle, unsigned* out, unsigned* period_us) {
  return with_device(handle, [&](const Device&) {
    const Return first = put(out, 0);
    return first == kSuccess ? put(period_us, 1'000'000) : first;
  });
}

uint64_t now_us() { return static_cast<uint64_t>(loom::clock::host_wall_ns() / 1000); }

}  // namespace

LOOM_NVML nvmlDeviceGetMemoryInfo(Handle handle, Memory* out) {
  return with_device(handle, [&](const Device& device) {
    const uint64_t used = device.driver_memory_bytes + used_bytes(device);
    return put(out, Memory{device.memory_bytes, device.memory_bytes - used, used});
  });
}
LOOM_NVML nvmlDeviceGetMemoryInfo_v2(Handle handle, MemoryV2* out) {
  return with_device(handle, [&](const Device& device) {
    if (out == nullptr) return kInvalidArgument;
    if (out->version != version_of<MemoryV2>(2)) return kArgumentVersionMismatch;
    const uint64_t used = used_bytes(device), kept = device.driver_memory_bytes;
    *out = {out->version, device.memory_bytes, kept, device.memory_bytes - kept - used, used};
    return kSuccess;
  });
}
// A window on all of the memory, as cards for servers have it: the next power of two.
LOOM_NVML nvmlDeviceGetBAR1MemoryInfo(Handle handle, Bar1Memory* out) {
  return with_device(handle, [&](const Device& device) {
    uint64_t total = 256 << 20;
    while (total < device.memory_bytes) total *= 2;
    return put(out, Bar1Memory{total, total, 0});
  });
}

LOOM_NVML nvmlDeviceGetUtilizationRates(Handle handle, Utilization* out) {
  return with_device(handle, [&](const Device& device) {
    const Busy busy = busy_of(device);
    return put(out, Utilization{percent(busy.kernels), percent(busy.kernels_or_copies)});
  });
}
LOOM_NVML nvmlDeviceGetEncoderUtilization(Handle handle, unsigned* out, unsigned* period_us) {
  return put_idle_engine(handle, out, period_us);
}
LOOM_NVML nvmlDeviceGetDecoderUtilization(Handle handle, unsigned* out, unsigned* period_us) {
  return put_idle_engine(handle, out, period_us);
}
LOOM_NVML nvmlDeviceGetJpgUtilization(Handle handle, unsigned* out, unsigned* period_us) {
  return put_idle_engine(handle, out, period_us);
}
LOOM_NVML nvmlDeviceGetOfaUtilization(Handle handle, unsigned* out, unsigned* period_us) {
  return put_idle_engine(handle, out, period_us);
}
LOOM_NVML nvmlDeviceGetEncoderStats(Handle handle, unsigned* sessions, unsigned* frames, unsigned* latency) {
  return with_device(handle, [&](const Device&) {
    for (unsigned* out : {sessions, frames, latency}) {
      if (put(out, 0) != kSuccess) return kInvalidArgument;
    }
    return kSuccess;
  });
}

LOOM_NVML nvmlDeviceGetTemperature(Handle handle, unsigned sensor, unsigned* out) {
  return put_temperature(handle, sensor, out);
}
LOOM_NVML nvmlDeviceGetTemperatureV(Handle handle, TemperatureV1* out) {
  if (out == nullptr) return with_device(handle, [](const Device&) { return kInvalidArgument; });
  return put_temperature(handle, out->sensor, &out->degrees);
}
// The highest that it reaches is where the clock would be lowered; it ends a little above.
LOOM_NVML nvmlDeviceGetTemperatureThreshold(Handle handle, unsigned kind, unsigned* out) {
  return with_device(handle, [&](const Device& device) {
    if (device.temperature_max_celsius == 0 || kind > kGpuMax) return kNotSupported;
    constexpr int kAbove[] = {7, 2, 10, 0};  // shutdown, slowdown, memory, GPU
    return put(out, device.temperature_max_celsius + kAbove[kind]);
  });
}

LOOM_NVML nvmlDeviceGetPowerUsage(Handle handle, unsigned* out) { return put_power(handle, out); }
LOOM_NVML nvmlDeviceGetPowerManagementMode(Handle handle, int* out) {
  return with_device(handle, [&](const Device& device) {
    return device.power_max_watts == 0 ? kNotSupported : put(out, 1);
  });
}
LOOM_NVML nvmlDeviceGetPowerManagementLimit(Handle handle, unsigned* out) {
  return with_device(
      handle, [&](const Device& device) { return put_known(out, milliwatts(device.power_max_watts)); });
}
LOOM_NVML nvmlDeviceGetPowerManagementDefaultLimit(Handle handle, unsigned* out) {
  return nvmlDeviceGetPowerManagementLimit(handle, out);
}
LOOM_NVML nvmlDeviceGetEnforcedPowerLimit(Handle handle, unsigned* out) {
  return nvmlDeviceGetPowerManagementLimit(handle, out);
}
LOOM_NVML nvmlDeviceGetPowerManagementLimitConstraints(Handle handle, unsigned* least, unsigned* most) {
  return with_device(handle, [&](const Device& device) {
    const Return first = put_known(least, milliwatts(device.power_idle_watts));
    return first == kSuccess ? put_known(most, milliwatts(device.power_max_watts)) : first;
  });
}
LOOM_NVML nvmlDeviceGetPerformanceState(Handle handle, int* out) {
  return with_device(handle, [&](const Device&) { return put(out, 0); });
}
LOOM_NVML nvmlDeviceGetPowerState(Handle handle, int* out) {
  return nvmlDeviceGetPerformanceState(handle, out);
}

LOOM_NVML nvmlDeviceGetClockInfo(Handle handle, unsigned domain, unsigned* out) {
  return put_clock(handle, domain, out, false);
}
LOOM_NVML nvmlDeviceGetMaxClockInfo(Handle handle, unsigned domain, unsigned* out) {
  return put_clock(handle, domain, out, true);
}
LOOM_NVML nvmlDeviceGetApplicationsClock(Handle handle, unsigned domain, unsigned* out) {
  return put_clock(handle, domain, out, true);
}
LOOM_NVML nvmlDeviceGetDefaultApplicationsClock(Handle handle, unsigned domain, unsigned* out) {
  return put_clock(handle, domain, out, true);
}
LOOM_NVML nvmlDeviceGetMaxCustomerBoostClock(Handle handle, unsigned domain, unsigned* out) {
  return put_clock(handle, domain, out, true);
}
LOOM_NVML nvmlDeviceGetClock(Handle handle, unsigned domain, unsigned id, unsigned* out) {
  if (id > kClockBoostMax) return with_device(handle, [](const Device&) { return kInvalidArgument; });
  return put_clock(handle, domain, out, id != kClockCurrent);
}
LOOM_NVML nvmlDeviceGetSupportedMemoryClocks(Handle handle, unsigned* count, unsigned* out) {
  return with_device(handle, [&](const Device& device) {
    if (device.memory_clock_mhz == 0) return kNotSupported;
    return put_list(count, out, 1, [&](size_t) { return static_cast<unsigned>(device.memory_clock_mhz); });
  });
}
LOOM_NVML nvmlDeviceGetSupportedGraphicsClocks(Handle handle, unsigned memory_clock, unsigned* count,
                                               unsigned* out) {
  return with_device(handle, [&](const Device& device) {
    if (device.clock_mhz == 0) return kNotSupported;
    if (memory_clock != static_cast<unsigned>(device.memory_clock_mhz)) return kNotFound;
    const int clocks[] = {device.clock_mhz, device.clock_idle_mhz};
    return put_list(count, out, device.clock_idle_mhz == 0 ? 1 : 2,
                    [&](size_t i) { return static_cast<unsigned>(clocks[i]); });
  });
}
// Why the clock is lower than it could be: nothing runs, or no reason.
LOOM_NVML nvmlDeviceGetCurrentClocksEventReasons(Handle handle, uint64_t* out) {
  return with_device(handle,
                     [&](const Device& device) { return put(out, busy_of(device).kernels > 0 ? 0 : 1); });
}
LOOM_NVML nvmlDeviceGetCurrentClocksThrottleReasons(Handle handle, uint64_t* out) {
  return nvmlDeviceGetCurrentClocksEventReasons(handle, out);
}
LOOM_NVML nvmlDeviceGetSupportedClocksEventReasons(Handle handle, uint64_t* out) {
  return with_device(handle, [&](const Device&) { return put(out, 1); });
}
LOOM_NVML nvmlDeviceGetSupportedClocksThrottleReasons(Handle handle, uint64_t* out) {
  return nvmlDeviceGetSupportedClocksEventReasons(handle, out);
}

LOOM_NVML nvmlDeviceGetComputeRunningProcesses(Handle handle, unsigned* count, ProcessV1* out) {
  return put_users(handle, count, out, [](const Process& process) {
    return ProcessV1{static_cast<unsigned>(process.pid), process.memory_bytes};
  });
}
LOOM_NVML nvmlDeviceGetComputeRunningProcesses_v2(Handle handle, unsigned* count, ProcessV2* out) {
  return put_users(handle, count, out, [](const Process& process) {
    return ProcessV2{static_cast<unsigned>(process.pid), process.memory_bytes, kNoInstance, kNoInstance};
  });
}
LOOM_NVML nvmlDeviceGetComputeRunningProcesses_v3(Handle handle, unsigned* count, ProcessV2* out) {
  return nvmlDeviceGetComputeRunningProcesses_v2(handle, count, out);
}
LOOM_NVML nvmlDeviceGetGraphicsRunningProcesses(Handle handle, unsigned* count, ProcessV1*) {
  return put_nobody(handle, count);
}
LOOM_NVML nvmlDeviceGetGraphicsRunningProcesses_v2(Handle handle, unsigned* count, ProcessV2*) {
  return put_nobody(handle, count);
}
LOOM_NVML nvmlDeviceGetGraphicsRunningProcesses_v3(Handle handle, unsigned* count, ProcessV2*) {
  return put_nobody(handle, count);
}
LOOM_NVML nvmlDeviceGetMPSComputeRunningProcesses(Handle handle, unsigned* count, ProcessV1*) {
  return put_nobody(handle, count);
}
LOOM_NVML nvmlDeviceGetMPSComputeRunningProcesses_v2(Handle handle, unsigned* count, ProcessV2*) {
  return put_nobody(handle, count);
}
LOOM_NVML nvmlDeviceGetMPSComputeRunningProcesses_v3(Handle handle, unsigned* count, ProcessV2*) {
  return put_nobody(handle, count);
}
// One sample of each process, of the last second.
LOOM_NVML nvmlDeviceGetProcessUtilization(Handle handle, ProcessUtilization* out, unsigned* count,
                                          uint64_t last_seen) {
  return with_device(handle, [&](const Device& device) {
    const std::vector<Process> users = users_of(device);
    const uint64_t now = now_us();
    if (users.empty() || last_seen >= now) return kNotFound;
    return put_list(count, out, users.size(), [&](size_t i) {
      const Busy busy = busy_of({users[i]});
      return ProcessUtilization{static_cast<unsigned>(users[i].pid), now, percent(busy.kernels),
                                percent(busy.kernels_or_copies),     0,   0};
    });
  });
}

// Each field says by itself whether there is an answer.
LOOM_NVML nvmlDeviceGetFieldValues(Handle handle, int count, FieldValue* out) {
  return with_device(handle, [&](const Device& device) {
    if (out == nullptr || count < 0) return kInvalidArgument;
    constexpr unsigned kLinkCount = 91, kAveragePower = 185, kPower = 186, kUnsigned = 1;
    for (int i = 0; i < count; ++i) {
      FieldValue& value = out[i];
      value.time_stamp = static_cast<int64_t>(now_us());
      value.latency = 0;
      value.value_type = kUnsigned;
      value.value.as_long = 0;
      value.result = kNotSupported;
      if (value.field == kLinkCount) value.result = put(&value.value.as_unsigned, device.num_links);
      if (value.field == kPower || value.field == kAveragePower) {
        value.result = put_power(&device, &value.value.as_unsigned);
      }
    }
    return kSuccess;
  });
}
