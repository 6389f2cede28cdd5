#include "torch/core/host_room.h"

#include "torch/core/device.h"

namespace loom::glue {

void check_host_room(const void* data, size_t bytes) {
  if (!host_memory::can_touch(data, bytes)) throw_short_of_host(bytes);
}

void throw_short_of_host(size_t bytes) {
  C10_THROW_ERROR(OutOfMemoryError,
                  device_name_upper() + " out of memory. Tried to write " + std::to_string(bytes >> 20) +
                      " MiB, and " + host_memory::describe() +
                      ". The device's statistics say what it holds (memory_summary()); a dry run "
                      "(torch.loom.dry_run) plans the program without that memory.");
}

}  // namespace loom::glue
