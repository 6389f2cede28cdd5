// What a device is.
#include <cstdio>
#include <string>

#include "nvml/session.h"

using namespace loom::nvml;

namespace {

constexpr int kUnknownArchitecture = -1;

// NVML's numbers of architectures, by compute capability.
int architecture_of(const Device& device) {
  switch (device.capability_major) {
    case 7:
      return device.capability_minor >= 5 ? 6 : 5;
    case 8:
      return device.capability_minor == 9 ? 8 : 7;
    case 9:
      return 9;
    case 10:
    case 12:
      return 10;
    default:
      return kUnknownArchitecture;
  }
}

int lanes_per_core(const Device& device) {
  const bool has_64 =
      device.capability_major == 7 || (device.capability_major == 8 && device.capability_minor == 0);
  return has_64 ? 64 : 128;
}

int brand_of(const Device& device) {
  const auto has = [&](const char* word) { return device.name.find(word) != std::string::npos; };
  constexpr int kUnknownBrand = 0, kTesla = 2, kGeForce = 5, kTitan = 6, kNvidiaRtx = 13, kNvidia = 14;
  if (has("GeForce")) return kGeForce;
  if (has("TITAN")) return kTitan;
  if (has("RTX")) return kNvidiaRtx;
  if (has("Tesla")) return kTesla;
  return device.is_of_nvidia() ? kNvidia : kUnknownBrand;
}

template <class Info>
void fill_place(const Device& device, Info& info) {
  info.domain = info.device = info.pci_subsystem_id = 0;
  info.bus = static_cast<unsigned>(device.index) + 1;
  info.pci_device_id = device.is_of_nvidia() ? 0x10DE : 0;  // the vendor; no card has the device 0
}

std::string bus_id_of(const Device& device, const char* format) {
  char text[32];
  std::snprintf(text, sizeof text, format, 0U, static_cast<unsigned>(device.index) + 1);
  return text;
}
constexpr const char* kLongForm = "%08X:%02X:00.0";
constexpr const char* kShortForm = "%04X:%02X:00.0";

}  // namespace

LOOM_NVML nvmlDeviceGetIndex(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) { return put(out, device.index); });
}
LOOM_NVML nvmlDeviceGetMinorNumber(Handle handle, unsigned* out) { return nvmlDeviceGetIndex(handle, out); }
LOOM_NVML nvmlDeviceGetModuleId(Handle handle, unsigned* out) { return nvmlDeviceGetIndex(handle, out); }
LOOM_NVML nvmlDeviceGetName(Handle handle, char* out, unsigned length) {
  return with_device(handle, [&](const Device& device) { return put_text(out, length, device.name); });
}
LOOM_NVML nvmlDeviceGetUUID(Handle handle, char* out, unsigned length) {
  return with_device(handle, [&](const Device& device) { return put_text(out, length, device.uuid); });
}
LOOM_NVML nvmlDeviceGetBrand(Handle handle, int* out) {
  return with_device(handle, [&](const Device& device) { return put(out, brand_of(device)); });
}
LOOM_NVML nvmlDeviceGetArchitecture(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) { return put(out, architecture_of(device)); });
}
LOOM_NVML nvmlDeviceGetCudaComputeCapability(Handle handle, int* major, int* minor) {
  return with_device(handle, [&](const Device& device) {
    const Return first = put(major, device.capability_major);
    return first == kSuccess ? put(minor, device.capability_minor) : first;
  });
}
LOOM_NVML nvmlDeviceGetNumGpuCores(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) {
    if (!device.is_of_nvidia()) return kNotSupported;
    return put_known(out, device.num_cores * lanes_per_core(device));
  });
}
LOOM_NVML nvmlDeviceGetMemoryBusWidth(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) { return put_known(out, device.memory_bus_bits); });
}
LOOM_NVML nvmlDeviceGetBoardId(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) { return put(out, (device.index + 1) << 8); });
}
LOOM_NVML nvmlDeviceGetMultiGpuBoard(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device&) { return put(out, 0); });
}
LOOM_NVML nvmlDeviceOnSameBoard(Handle each, Handle other, int* out) {
  return with_device(each, [&](const Device& device) {
    return with_device(other, [&](const Device& second) { return put(out, &device == &second); });
  });
}

LOOM_NVML nvmlDeviceGetPciInfo_v3(Handle handle, PciInfo* out) {
  return with_device(handle, [&](const Device& device) {
    if (out == nullptr) return kInvalidArgument;
    *out = {};
    fill_place(device, *out);
    put_text(out->bus_id_legacy, sizeof out->bus_id_legacy, bus_id_of(device, kShortForm));
    return put_text(out->bus_id, sizeof out->bus_id, bus_id_of(device, kLongForm));
  });
}
LOOM_NVML nvmlDeviceGetPciInfo_v2(Handle handle, PciInfoV2* out) {
  return with_device(handle, [&](const Device& device) {
    if (out == nullptr) return kInvalidArgument;
    *out = {};
    fill_place(device, *out);
    return put_text(out->bus_id_legacy, sizeof out->bus_id_legacy, bus_id_of(device, kShortForm));
  });
}
LOOM_NVML nvmlDeviceGetPciInfo(Handle handle, PciInfoV2* out) { return nvmlDeviceGetPciInfo_v2(handle, out); }
LOOM_NVML nvmlDeviceGetPciInfoExt(Handle handle, PciInfoExt* out) {
  return with_device(handle, [&](const Device& device) {
    if (out == nullptr) return kInvalidArgument;
    if (out->version != version_of<PciInfoExt>(1)) return kArgumentVersionMismatch;
    fill_place(device, *out);
    out->base_class = 3;  // a controller of displays,
    out->sub_class = 2;   // 3D
    return put_text(out->bus_id, sizeof out->bus_id, bus_id_of(device, kLongForm));
  });
}

// Modes: what is on, and what a program could have switched.
LOOM_NVML nvmlDeviceGetPersistenceMode(Handle handle, int* out) {
  return with_device(handle, [&](const Device&) { return put(out, 1); });
}
LOOM_NVML nvmlDeviceGetComputeMode(Handle handle, int* out) {
  return with_device(handle, [&](const Device&) { return put(out, 0); });
}
LOOM_NVML nvmlDeviceGetDisplayMode(Handle handle, int* out) { return nvmlDeviceGetComputeMode(handle, out); }
LOOM_NVML nvmlDeviceGetDisplayActive(Handle handle, int* out) {
  return nvmlDeviceGetComputeMode(handle, out);
}
LOOM_NVML nvmlDeviceGetAccountingMode(Handle handle, int* out) {
  return nvmlDeviceGetComputeMode(handle, out);
}
LOOM_NVML nvmlDeviceGetVirtualizationMode(Handle handle, int* out) {
  return nvmlDeviceGetComputeMode(handle, out);
}
LOOM_NVML nvmlDeviceIsMigDeviceHandle(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device&) { return put(out, 0); });
}
LOOM_NVML nvmlDeviceGetMaxMigDeviceCount(Handle handle, unsigned* out) {
  return nvmlDeviceIsMigDeviceHandle(handle, out);
}
LOOM_NVML nvmlDeviceGetNumFans(Handle handle, unsigned* out) {
  return nvmlDeviceIsMigDeviceHandle(handle, out);
}

LOOM_NVML nvmlDeviceGetEccMode(Handle handle, int* now, int* pending) {
  return with_device(handle, [&](const Device& device) {
    if (!device.has_ecc()) return kNotSupported;
    const Return first = put(now, 1);
    return first == kSuccess ? put(pending, 1) : first;
  });
}
LOOM_NVML nvmlDeviceGetDefaultEccMode(Handle handle, int* out) {
  return with_device(handle,
                     [&](const Device& device) { return device.has_ecc() ? put(out, 1) : kNotSupported; });
}
LOOM_NVML nvmlDeviceGetTotalEccErrors(Handle handle, int, int, uint64_t* out) {
  return with_device(handle,
                     [&](const Device& device) { return device.has_ecc() ? put(out, 0) : kNotSupported; });
}
LOOM_NVML nvmlDeviceGetMemoryErrorCounter(Handle handle, int, int, int, uint64_t* out) {
  return nvmlDeviceGetTotalEccErrors(handle, 0, 0, out);
}
LOOM_NVML nvmlDeviceGetDetailedEccErrors(Handle handle, int, int, EccCounts* out) {
  return with_device(
      handle, [&](const Device& device) { return device.has_ecc() ? put(out, EccCounts{}) : kNotSupported; });
}
LOOM_NVML nvmlDeviceGetRemappedRows(Handle handle, unsigned* correctable, unsigned* uncorrectable,
                                    unsigned* is_pending, unsigned* has_failed) {
  return with_device(handle, [&](const Device& device) {
    if (!device.has_ecc()) return kNotSupported;
    for (unsigned* out : {correctable, uncorrectable, is_pending, has_failed}) {
      if (put(out, 0) != kSuccess) return kInvalidArgument;
    }
    return kSuccess;
  });
}
