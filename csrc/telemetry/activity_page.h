// What a process publishes of its devices, as a page of memory: device memory that is taken, and when each
// stream ran what. Native byte order.
#pragma once

#include <atomic>
#include <cstddef>
#include <cstdint>

#include "driver/activity.h"

namespace loom::telemetry {

constexpr char kPageMagic[8] = "LOOMACT";
constexpr uint32_t kPageVersion = 2;
constexpr size_t kMaxDevices = 64, kMaxStreams = 256;
// Of a machine, the published files are this, the user's number, the machine's name and letters by chance,
// with lines between them.
constexpr const char* kFolder = "/dev/shm/";
constexpr const char* kFilePrefix = "torch-loom-";
// What a process publishes to itself alone is a file in memory, as its open files are linked.
constexpr const char* kUnnamedFile = "/memfd:torch-loom-activity";

struct DeviceEntry {
  uint32_t physical, unused;
  std::atomic<uint64_t> memory_bytes, capacity_bytes;  // capacity: 0 before any is taken
  char chip[32];                                       // the chip's name, cut to 31 bytes
};

struct PageHeader {
  char magic[8];
  uint32_t version, process, num_devices, num_streams, num_buckets, bucket_shift;
  uint32_t unused[8];
  DeviceEntry devices[kMaxDevices];
};

// Then, per device and per stream, a driver::StreamActivity.
constexpr size_t kStreamsOffset = 4096;
static_assert(sizeof(PageHeader) == 64 + 56 * kMaxDevices && sizeof(PageHeader) <= kStreamsOffset);

}  // namespace loom::telemetry
