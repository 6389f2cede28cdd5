// The library itself, the machine, and the way to a device.
#include <pthread.h>

#include <algorithm>
#include <atomic>
#include <cstdio>
#include <fstream>
#include <memory>
#include <mutex>
#include <new>
#include <string_view>

#include "nvml/session.h"

namespace loom::nvml {

namespace {

std::atomic<const Machine*> current{nullptr};
std::mutex mutex;  // of what follows
unsigned num_users = 0;
const Machine* last = nullptr;  // what handles of an earlier use are of

// Another thread of the parent may have held it while the process was forked.
void renew_mutex() { new (&mutex) std::mutex; }

Return begin() {
  const std::lock_guard lock(mutex);
  if (num_users == 0) {
    [[maybe_unused]] static const int registered = pthread_atfork(nullptr, nullptr, renew_mutex);
    try {
      auto read = std::make_unique<Machine>(read_machine());
      if (last == nullptr || last->text != read->text) last = read.release();
    } catch (...) {
      return kDriverNotLoaded;
    }
  }
  ++num_users;
  current.store(last, std::memory_order_release);
  return kSuccess;
}

Return end() {
  const std::lock_guard lock(mutex);
  if (num_users == 0) return kUninitialized;
  if (--num_users == 0) current.store(nullptr, std::memory_order_release);
  return kSuccess;
}

template <class Is>
Return put_first(Handle* out, Return otherwise, Is is) {
  return with_machine([&](const Machine& found) {
    if (out == nullptr) return kInvalidArgument;
    const auto device = std::find_if(found.devices.begin(), found.devices.end(), is);
    return device == found.devices.end() ? otherwise : put(out, &*device);
  });
}

}  // namespace

const Machine* machine() noexcept { return current.load(std::memory_order_acquire); }

}  // namespace loom::nvml

using namespace loom::nvml;

LOOM_NVML nvmlInit() { return begin(); }
LOOM_NVML nvmlInit_v2() { return begin(); }
LOOM_NVML nvmlInitWithFlags(unsigned) { return begin(); }
LOOM_NVML nvmlShutdown() { return end(); }

extern "C" __attribute__((visibility("default"))) const char* nvmlErrorString(int number) {
  switch (number) {
    case 0:
      return "Success";
    case 1:
      return "Uninitialized";
    case 2:
      return "Invalid Argument";
    case 3:
      return "Not Supported";
    case 4:
      return "Insufficient Permissions";
    case 5:
      return "Already Initialized";
    case 6:
      return "Not Found";
    case 7:
      return "Insufficient Size";
    case 8:
      return "Insufficient External Power";
    case 9:
      return "Driver Not Loaded";
    case 10:
      return "Timeout";
    case 11:
      return "Interrupt Request Issue";
    case 12:
      return "NVML Shared Library Not Found";
    case 13:
      return "Function Not Found";
    case 14:
      return "Corrupted infoROM";
    case 15:
      return "GPU is lost";
    case 16:
      return "GPU requires restart";
    case 17:
      return "The operating system has blocked the request.";
    case 18:
      return "RM has detected an NVML/RM version mismatch.";
    case 19:
      return "GPU is in use";
    case 20:
      return "Insufficient Memory";
    case 21:
      return "No data";
    case 23:
      return "Insufficient Resources";
    case 25:
      return "Argument version mismatch";
    case 26:
      return "Deprecated";
    case 27:
      return "Not ready";
    case 28:
      return "GPU not found";
    case 29:
      return "Invalid state";
    default:
      return "Unknown Error";
  }
}

LOOM_NVML nvmlSystemGetDriverVersion(char* out, unsigned length) {
  return with_machine([&](const Machine& found) { return put_text(out, length, found.driver_version); });
}
// The version of CUDA's driver interface comes first.
LOOM_NVML nvmlSystemGetNVMLVersion(char* out, unsigned length) {
  return with_machine([&](const Machine& found) {
    return put_text(out, length, std::to_string(found.cuda_version / 1000) + "." + found.driver_version);
  });
}
LOOM_NVML nvmlSystemGetCudaDriverVersion(int* out) {
  return with_machine([&](const Machine& found) { return put(out, found.cuda_version); });
}
LOOM_NVML nvmlSystemGetCudaDriverVersion_v2(int* out) { return nvmlSystemGetCudaDriverVersion(out); }

LOOM_NVML nvmlSystemGetProcessName(unsigned pid, char* out, unsigned length) {
  return with_machine([&](const Machine&) {
    std::string name;
    std::ifstream file("/proc/" + std::to_string(pid) + "/cmdline");
    if (!std::getline(file, name, '\0')) return kNotFound;
    if (out == nullptr || length == 0) return kInvalidArgument;
    return put_text(out, length, name.substr(0, length - 1));
  });
}

// Every processor is as near to every device.
LOOM_NVML nvmlSystemGetTopologyGpuSet(unsigned, unsigned* count, Handle* out) {
  return with_machine([&](const Machine& found) {
    return put_list(count, out, found.devices.size(), [&](size_t i) { return &found.devices[i]; });
  });
}

LOOM_NVML nvmlDeviceGetCount(unsigned* out) {
  return with_machine([&](const Machine& found) { return put(out, found.devices.size()); });
}
LOOM_NVML nvmlDeviceGetCount_v2(unsigned* out) { return nvmlDeviceGetCount(out); }
LOOM_NVML nvmlUnitGetCount(unsigned* out) {
  return with_machine([&](const Machine&) { return put(out, 0); });
}
LOOM_NVML nvmlGetExcludedDeviceCount(unsigned* out) { return nvmlUnitGetCount(out); }

LOOM_NVML nvmlDeviceGetHandleByIndex(unsigned index, Handle* out) {
  return put_first(out, kInvalidArgument,
                   [&](const Device& device) { return static_cast<unsigned>(device.index) == index; });
}
LOOM_NVML nvmlDeviceGetHandleByIndex_v2(unsigned index, Handle* out) {
  return nvmlDeviceGetHandleByIndex(index, out);
}
LOOM_NVML nvmlDeviceGetHandleByUUID(const char* uuid, Handle* out) {
  if (uuid == nullptr) return with_machine([](const Machine&) { return kInvalidArgument; });
  return put_first(out, kNotFound, [&](const Device& device) { return device.uuid == uuid; });
}
LOOM_NVML nvmlDeviceGetHandleByUUIDV(const Uuid* uuid, Handle* out) {
  if (uuid == nullptr) return with_machine([](const Machine&) { return kInvalidArgument; });
  if (uuid->kind != 1) return with_machine([](const Machine&) { return kNotSupported; });
  return nvmlDeviceGetHandleByUUID(std::string(uuid->text, strnlen(uuid->text, sizeof uuid->text)).c_str(),
                                   out);
}
// "00000000:01:00.0", also with a shorter domain or without one.
LOOM_NVML nvmlDeviceGetHandleByPciBusId(const char* bus_id, Handle* out) {
  if (bus_id == nullptr) return with_machine([](const Machine&) { return kInvalidArgument; });
  unsigned domain = 0, bus = 0, place = 0, function = 0;
  const bool is_full = std::sscanf(bus_id, "%x:%x:%x.%x", &domain, &bus, &place, &function) >= 3;
  if (!is_full) {
    domain = 0;
    if (std::sscanf(bus_id, "%x:%x.%x", &bus, &place, &function) < 2) {
      return with_machine([](const Machine&) { return kInvalidArgument; });
    }
  }
  return put_first(out, kNotFound, [&](const Device& device) {
    return domain == 0 && place == 0 && bus == static_cast<unsigned>(device.index) + 1;
  });
}
LOOM_NVML nvmlDeviceGetHandleByPciBusId_v2(const char* bus_id, Handle* out) {
  return nvmlDeviceGetHandleByPciBusId(bus_id, out);
}
LOOM_NVML nvmlDeviceGetHandleBySerial(const char* serial, Handle* out) {
  if (serial == nullptr) return with_machine([](const Machine&) { return kInvalidArgument; });
  return put_first(out, kNotFound, [](const Device&) { return false; });
}
