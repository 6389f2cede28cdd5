// Whether the library is in use, and how its functions begin: with a machine, a device and places for
// results.
#pragma once

#include <cstring>
#include <string>

#include "nvml/machine.h"
#include "telemetry/activity_reader.h"

namespace loom::nvml {

// The machine between nvmlInit() and nvmlShutdown(); else null. Machines are never freed: a handle stays
// valid as long as the devices are the same.
const Machine* machine() noexcept;

// kUninitialized, or what the body returns of the machine.
template <class Body>
Return with_machine(Body body) noexcept {
  const Machine* const found = machine();
  if (found == nullptr) return kUninitialized;
  try {
    return body(*found);
  } catch (...) {
    return kUnknown;  // no memory: nothing of C++ may leave the library
  }
}

// The same of a device of it.
template <class Body>
Return with_device(Handle handle, Body body) noexcept {
  return with_machine([&](const Machine& found) {
    const Device* const device = found.find(handle);
    return device == nullptr ? kInvalidArgument : body(*device);
  });
}

template <class Out, class T>
Return put(Out* out, const T& value) noexcept {
  if (out == nullptr) return kInvalidArgument;
  *out = static_cast<Out>(value);
  return kSuccess;
}

// A figure that 0 says is not known.
template <class Out, class T>
Return put_known(Out* out, const T& value) noexcept {
  return value == T{} ? kNotSupported : put(out, value);
}

inline Return put_text(char* out, unsigned length, const std::string& text) noexcept {
  if (out == nullptr) return kInvalidArgument;
  if (length < text.size() + 1) return kInsufficientSize;
  std::memcpy(out, text.c_str(), text.size() + 1);
  return kSuccess;
}

// Fills an array of the caller's, of *count places, and says how many there are; with too few, only that.
template <class Item, class Make>
Return put_list(unsigned* count, Item* out, size_t size, Make make) {
  if (count == nullptr) return kInvalidArgument;
  const unsigned room = *count;
  *count = static_cast<unsigned>(size);
  if (size == 0) return kSuccess;
  if (room < size || out == nullptr) return kInsufficientSize;
  for (size_t i = 0; i < size; ++i) out[i] = make(i);
  return kSuccess;
}

inline std::vector<telemetry::Process> processes_of(const Device& device) {
  return telemetry::users_of(machine()->name, device.index);
}

}  // namespace loom::nvml
