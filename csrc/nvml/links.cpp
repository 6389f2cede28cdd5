// What connects a device: PCI Express to the host, NVLink to the others.
#include <unistd.h>

#include <algorithm>

#include "nvml/session.h"

using namespace loom::nvml;

namespace {

constexpr unsigned kWidth = 16;

unsigned generation_of(const Device& device) {
  return device.capability_major >= 9 ? 5 : device.capability_major >= 8 ? 4 : 3;
}

// NVML's numbers: of Ampere 3, Hopper 4, Blackwell 5.
unsigned nvlink_of(const Device& device) {
  return device.capability_major >= 10  ? 5
         : device.capability_major == 9 ? 4
         : device.capability_major == 8 ? 3
                                        : 2;
}

template <class Body>
Return with_link(Handle handle, unsigned link, Body body) {
  return with_device(handle, [&](const Device& device) {
    constexpr unsigned kMaxLinks = 18;
    if (link >= kMaxLinks) return kInvalidArgument;
    return link >= static_cast<unsigned>(device.num_links) ? kNotSupported : body(device);
  });
}

Return put_generation(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device& device) { return put(out, generation_of(device)); });
}

Return put_width(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device&) { return put(out, kWidth); });
}

// A bit for each processor, in words.
Return put_processors(Handle handle, unsigned num_words, unsigned long* out) {
  return with_device(handle, [&](const Device&) {
    if (out == nullptr || num_words == 0) return kInvalidArgument;
    constexpr unsigned kBits = 8 * sizeof(unsigned long);
    const auto count = static_cast<unsigned>(std::max(1L, sysconf(_SC_NPROCESSORS_CONF)));
    std::fill(out, out + num_words, 0UL);
    for (unsigned i = 0; i < std::min(count, num_words * kBits); ++i) out[i / kBits] |= 1UL << (i % kBits);
    return kSuccess;
  });
}

}  // namespace

LOOM_NVML nvmlDeviceGetBusType(Handle handle, unsigned* out) {
  constexpr unsigned kPciExpress = 2;
  return with_device(handle, [&](const Device&) { return put(out, kPciExpress); });
}
LOOM_NVML nvmlDeviceGetCurrPcieLinkGeneration(Handle handle, unsigned* out) {
  return put_generation(handle, out);
}
LOOM_NVML nvmlDeviceGetMaxPcieLinkGeneration(Handle handle, unsigned* out) {
  return put_generation(handle, out);
}
LOOM_NVML nvmlDeviceGetGpuMaxPcieLinkGeneration(Handle handle, unsigned* out) {
  return put_generation(handle, out);
}
LOOM_NVML nvmlDeviceGetCurrPcieLinkWidth(Handle handle, unsigned* out) { return put_width(handle, out); }
LOOM_NVML nvmlDeviceGetMaxPcieLinkWidth(Handle handle, unsigned* out) { return put_width(handle, out); }
LOOM_NVML nvmlDeviceGetPcieSpeed(Handle handle, unsigned* out) {  // in MB/s, of a lane
  constexpr unsigned kSpeeds[] = {8000, 16000, 32000};
  return with_device(handle,
                     [&](const Device& device) { return put(out, kSpeeds[generation_of(device) - 3]); });
}
LOOM_NVML nvmlDeviceGetPcieReplayCounter(Handle handle, unsigned* out) {
  return with_device(handle, [&](const Device&) { return put(out, 0); });
}

LOOM_NVML nvmlDeviceGetNvLinkState(Handle handle, unsigned link, int* out) {
  return with_link(handle, link, [&](const Device&) { return put(out, 1); });
}
LOOM_NVML nvmlDeviceGetNvLinkVersion(Handle handle, unsigned link, unsigned* out) {
  return with_link(handle, link, [&](const Device& device) { return put(out, nvlink_of(device)); });
}
LOOM_NVML nvmlDeviceGetNvLinkCapability(Handle handle, unsigned link, int capability, unsigned* out) {
  constexpr int kBridge = 4;  // of two cards, which the system does not have
  return with_link(handle, link, [&](const Device&) { return put(out, capability < kBridge); });
}
LOOM_NVML nvmlDeviceGetNvLinkErrorCounter(Handle handle, unsigned link, int, uint64_t* out) {
  return with_link(handle, link, [&](const Device&) { return put(out, 0); });
}
LOOM_NVML nvmlDeviceGetNvLinkRemoteDeviceType(Handle handle, unsigned link, unsigned* out) {
  constexpr unsigned kSwitch = 2;
  return with_link(handle, link, [&](const Device&) { return put(out, kSwitch); });
}

// Every device reaches the memory of every other.
LOOM_NVML nvmlDeviceGetP2PStatus(Handle each, Handle other, int, int* out) {
  return with_device(
      each, [&](const Device&) { return with_device(other, [&](const Device&) { return put(out, 0); }); });
}
LOOM_NVML nvmlDeviceGetTopologyCommonAncestor(Handle item, Handle other, int* out) {
  return with_device(item, [&](const Device& first) {
    return with_device(other,
                       [&](const Device& second) { return put(out, &first == &second ? kInternal : kNode); });
  });
}
LOOM_NVML nvmlDeviceGetTopologyNearestGpus(Handle handle, unsigned level, unsigned* count, Handle* out) {
  return with_device(handle, [&](const Device& device) {
    std::vector<Handle> found;
    for (const Device& other : machine()->devices) {
      if (level == kNode && &other != &device) found.push_back(&other);
    }
    return put_list(count, out, found.size(), [&](size_t i) { return found[i]; });
  });
}
LOOM_NVML nvmlDeviceGetCpuAffinity(Handle handle, unsigned num_words, unsigned long* out) {
  return put_processors(handle, num_words, out);
}
LOOM_NVML nvmlDeviceGetCpuAffinityWithinScope(Handle handle, unsigned num_words, unsigned long* out,
                                              unsigned) {
  return put_processors(handle, num_words, out);
}
LOOM_NVML nvmlDeviceGetMemoryAffinity(Handle handle, unsigned num_words, unsigned long* out, unsigned) {
  return with_device(handle, [&](const Device&) {
    if (out == nullptr || num_words == 0) return kInvalidArgument;
    std::fill(out, out + num_words, 0UL);
    out[0] = 1;
    return kSuccess;
  });
}
