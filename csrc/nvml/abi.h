// The part of NVML's binary interface that the library answers: numbers and structures as programs compiled
// against NVIDIA's header have them. Names are NVIDIA's, without the prefix.
#pragma once

#include <cstdint>

#define LOOM_NVML extern "C" __attribute__((visibility("default"))) ::loom::nvml::Return

namespace loom::nvml {

enum Return : int {
  kSuccess = 0,
  kUninitialized = 1,
  kInvalidArgument = 2,
  kNotSupported = 3,
  kNotFound = 6,
  kInsufficientSize = 7,
  kDriverNotLoaded = 9,
  kArgumentVersionMismatch = 25,
  kUnknown = 999,
};

// What programs hold of a device: they never look inside.
struct Device;
using Handle = const Device*;

enum Clock : unsigned { kClockGraphics, kClockSm, kClockMemory, kClockVideo, kNumClocks };
enum ClockId : unsigned { kClockCurrent, kClockApplicationTarget, kClockApplicationDefault, kClockBoostMax };
enum Threshold : unsigned { kShutdown, kSlowdown, kMemoryMax, kGpuMax };
enum Topology : unsigned { kInternal = 0, kSingle = 10, kMultiple = 20, kHostBridge = 30, kNode = 40 };

// Structures with a version have their size in its low 24 bits.
template <class T>
constexpr unsigned version_of(unsigned number) {
  return static_cast<unsigned>(sizeof(T)) | number << 24;
}

struct Memory {
  uint64_t total, free, used;
};
struct MemoryV2 {
  unsigned version;
  uint64_t total, reserved, free, used;
};
struct Bar1Memory {
  uint64_t total, free, used;
};
struct Utilization {
  unsigned gpu, memory;
};
struct PciInfoV2 {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  unsigned reserved[4];
};
struct PciInfo {
  char bus_id_legacy[16];
  unsigned domain, bus, device, pci_device_id, pci_subsystem_id;
  char bus_id[32];
};
struct PciInfoExt {
  unsigned version, domain, bus, device, pci_device_id, pci_subsystem_id, base_class, sub_class;
  char bus_id[32];
};
struct ProcessV1 {
  unsigned pid;
  uint64_t used_memory;
};
struct ProcessV2 {
  unsigned pid;
  uint64_t used_memory;
  unsigned gpu_instance, compute_instance;
};
struct ProcessUtilization {
  unsigned pid;
  uint64_t time_stamp;
  unsigned sm, memory, encoder, decoder;
};
struct EccCounts {
  uint64_t l1, l2, memory, registers;
};
struct TemperatureV1 {
  unsigned version, sensor;
  int degrees;
};
struct Uuid {
  unsigned version, kind;  // 1: text, 2: 16 bytes
  char text[41];
};
struct FieldValue {
  unsigned field, scope;
  int64_t time_stamp, latency;
  unsigned value_type;
  Return result;
  union {
    double as_double;
    unsigned as_unsigned;
    uint64_t as_long;
  } value;
};

static_assert(sizeof(MemoryV2) == 40 && version_of<MemoryV2>(2) == 0x2000028);
static_assert(sizeof(PciInfo) == 68 && sizeof(ProcessV2) == 24 && sizeof(FieldValue) == 40);

}  // namespace loom::nvml
