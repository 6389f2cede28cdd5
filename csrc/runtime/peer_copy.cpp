#include "runtime/peer_copy.h"

#include <memory>

#include "runtime/commands.h"
#include "runtime/worlds.h"

namespace loom::runtime {

namespace {

bool is_foreign(const Device& device, const Place& side) {
  return side.device != nullptr && &side.device->driver() != &device.driver() &&
         !side.device->driver().info().host_addressable;
}

}  // namespace

bool copy_between_drivers(const Device& device, driver::Stream stream, void* destination, const void* source,
                          size_t bytes) {
  const Place to = locate(destination), from = locate(source);
  const bool is_read = is_foreign(device, from);
  if (bytes == 0 || (!is_read && !is_foreign(device, to))) return false;
  const Device& other = is_read ? *from.device : *to.device;
  const driver::Stream others = other.stream(current_stream(other.logical));
  // Each driver has read or written pageable memory when its copy() returns.
  const auto host = std::make_unique<std::byte[]>(bytes);
  if (is_read) {
    untold::copy(other.driver(), others, host.get(), source, bytes);
    untold::copy(device.driver(), stream, destination, host.get(), bytes);
  } else {
    untold::copy(device.driver(), stream, host.get(), source, bytes);
    untold::copy(other.driver(), others, destination, host.get(), bytes);
  }
  return true;
}

}  // namespace loom::runtime
