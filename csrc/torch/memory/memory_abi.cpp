// What torch_loom/include/loom_memory.h declares: device memory for libraries written in C.
#include <string>

#include "../../../torch_loom/include/loom_memory.h"
#include "runtime/worlds.h"
#include "torch/core/device.h"

namespace loom::glue {

namespace {

thread_local std::string last_error;

template <typename F>
bool succeeds(F&& body) noexcept {
  try {
    body();
    return true;
  } catch (const std::exception& error) {
    last_error = error.what();
  }
  return false;
}

}  // namespace

}  // namespace loom::glue

void* loom_malloc(size_t bytes, int device) {
  void* address = nullptr;
  loom::glue::succeeds([&] {
    const loom::runtime::Device& own = loom::runtime::get().device(device);
    address = own.driver().allocate(own.driver_index, bytes);
  });
  return address;
}

int loom_free(void* address) {
  return loom::glue::succeeds([&] {
    loom::runtime::get();
    const loom::runtime::Place where = loom::runtime::locate(address);
    if (address == nullptr) return;
    if (where.device == nullptr) {
      throw loom::InvalidArgument("loom_free: the address is not device memory");
    }
    where.device->driver().deallocate(address);
  })
             ? 0
             : 1;
}

const char* loom_last_error(void) { return loom::glue::last_error.c_str(); }
